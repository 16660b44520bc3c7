#define _GNU_SOURCE
#include "release.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm_version.h>

/* slurmctld takes a plugin only if plugin_version is exactly its own, down to the micro release, and ends if it is not.
 * job_desc_msg_t changes between releases only. So the number is set while slurmctld loads this file, to the one of a
 * plugin of Slurm's own that it has already checked; with another release the plugin then loads and does nothing.
 * The alias keeps our own uses from meeting another plugin's variable of that name. */
static uint32_t version_claimed = SLURM_VERSION_NUMBER;
extern uint32_t plugin_version __attribute__((alias("version_claimed"), visibility("default")));
/* For "fairgpu doctor", which finds this text in the file. */
__attribute__((visibility("default"))) const char fairgpu_built_for[] = "fairgpu-built-for:" FAIRGPU_BUILT_FOR;

enum { MAX_OBJECTS = 512 };

struct objects {
	char *names[MAX_OBJECTS];
	size_t n_names;
};

static int note_object(struct dl_phdr_info *info, size_t size, void *context)
{
	struct objects *objects = context;
	const char *base = strrchr(info->dlpi_name, '/');

	(void) size;
	/* Plugins are called TYPE_NAME.so; libraries lib*.so. */
	if (base && strncmp(base, "/lib", 4) != 0 && strchr(base, '_') && objects->n_names < MAX_OBJECTS)
		objects->names[objects->n_names++] = strdup(info->dlpi_name);
	return 0;
}

/* plugin_version of a loaded object, 0 if it is no plugin whose exact version slurmctld has checked. */
static uint32_t version_in(const char *name)
{
	void *handle = name ? dlopen(name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	const uint32_t *version;
	const char *type;
	uint32_t found = 0;

	if (!handle)
		return 0;
	version = dlsym(handle, "plugin_version");
	type = dlsym(handle, "plugin_type");
	if (version && type && version != &version_claimed && strchr(type, '/'))
		found = *version;
	dlclose(handle);
	return found;
}

__attribute__((constructor)) static void take_version(void)
{
	struct objects objects = {.n_names = 0};
	uint32_t found = 0;

	dl_iterate_phdr(note_object, &objects); /* nothing may be opened inside: the loader's lock is held */
	for (size_t i = 0; i < objects.n_names; i++) {
		if (!found)
			found = version_in(objects.names[i]);
		free(objects.names[i]);
	}
	if (found)
		version_claimed = found;
}

bool is_our_release(void)
{
	return version_claimed >> 8 == SLURM_VERSION_NUMBER >> 8;
}

static void name_release(uint32_t version, char name[16])
{
	snprintf(name, 16, "%u.%02u", SLURM_VERSION_MAJOR(version), SLURM_VERSION_MINOR(version));
}

void release_names(char built_for[16], char running[16])
{
	name_release(SLURM_VERSION_NUMBER, built_for);
	name_release(version_claimed, running);
}
