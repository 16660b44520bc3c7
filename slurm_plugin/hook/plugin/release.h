/* Whether this plugin may touch anything in the slurmctld that loaded it. */
#ifndef FAIRGPU_RELEASE_H
#define FAIRGPU_RELEASE_H

#include <stdbool.h>

/* The running Slurm is of the release (year and month) whose headers this was compiled with. */
bool is_our_release(void);
/* "22.05", of the headers and of the running Slurm. */
void release_names(char built_for[16], char running[16]);

#endif
