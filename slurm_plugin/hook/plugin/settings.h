/* Settings in job_submit_fairgpu.conf beside the plugin; read again when the file changes. */
#ifndef FAIRGPU_SETTINGS_H
#define FAIRGPU_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_PATH = 108, MAX_UIDS = 16 }; /* sun_path, its final NUL included */

struct settings {
	char socket[MAX_PATH];
	int64_t deadline_us;
	int64_t pause_us;
	unsigned failures;
	uint32_t uids[MAX_UIDS]; /* whose job updates pass at once; root's always do */
	size_t n_uids;
};

enum settings_change { SAME, LOADED, DAMAGED };

/* Copies the settings in force. DAMAGED: the file was changed and cannot be used, the former ones stay; problem says
 * which line. */
enum settings_change settings_get(struct settings *settings, char *problem, size_t problem_size);

#endif
