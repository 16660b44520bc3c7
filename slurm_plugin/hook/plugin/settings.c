#define _GNU_SOURCE
#include "settings.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct settings DEFAULTS = {
	.socket = "/run/fairgpu/hook.sock", .deadline_us = 20000, .failures = 3, .pause_us = 10000000,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct settings in_force;
static struct stat seen; /* all zero: no file */
static bool is_read;

static bool read_number(const char *text, double low, double high, double *value)
{
	char *end;

	errno = 0;
	*value = strtod(text, &end);
	return errno == 0 && end != text && *end == '\0' && *value >= low && *value <= high;
}

static bool read_uids(char *text, struct settings *settings)
{
	char *rest = NULL;
	double uid;

	settings->n_uids = 0;
	for (char *word = strtok_r(text, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
		if (settings->n_uids == MAX_UIDS || !read_number(word, 0, UINT32_MAX, &uid))
			return false;
		settings->uids[settings->n_uids++] = (uint32_t) uid;
	}
	return true;
}

static bool read_setting(const char *name, char *text, struct settings *settings)
{
	double value = 0;
	bool is_good = false;

	if (strcmp(name, "socket") == 0) {
		is_good = text[0] == '/' && strlen(text) < MAX_PATH;
		if (is_good)
			strcpy(settings->socket, text);
	} else if (strcmp(name, "deadline_ms") == 0) {
		is_good = read_number(text, 1, 200, &value);
		settings->deadline_us = (int64_t) (value * 1000);
	} else if (strcmp(name, "failures") == 0) {
		is_good = read_number(text, 1, 1000, &value);
		settings->failures = (unsigned) value;
	} else if (strcmp(name, "pause_s") == 0) {
		is_good = read_number(text, 0.1, 600, &value);
		settings->pause_us = (int64_t) (value * 1000000);
	} else if (strcmp(name, "uids") == 0) {
		is_good = read_uids(text, settings);
	}
	return is_good;
}

/* A line is "name = value", empty, or a comment; false otherwise. */
static bool read_line(char *line, struct settings *settings)
{
	char *name = line + strspn(line, " \t"), *value;

	line[strcspn(line, "#\r\n")] = '\0';
	for (size_t n = strlen(line); n > 0 && strchr(" \t", line[n - 1]); n--)
		line[n - 1] = '\0';
	if (*name == '\0')
		return true;
	value = strchr(name, '=');
	if (!value)
		return false;
	*value++ = '\0';
	name[strcspn(name, " \t")] = '\0';
	return read_setting(name, value + strspn(value, " \t"), settings);
}

static bool read_file(const char *path, struct settings *settings, char *problem, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[512];
	int number = 0;
	bool is_good = file != NULL;

	*settings = DEFAULTS;
	if (!file)
		snprintf(problem, size, "%s cannot be read", path);
	while (is_good && fgets(line, sizeof(line), file)) {
		number++;
		is_good = read_line(line, settings);
		if (!is_good)
			snprintf(problem, size, "%s, line %d", path, number);
	}
	if (file)
		fclose(file);
	return is_good;
}

/* Where this very file was loaded from, with .conf for .so. */
static bool find_path(char path[PATH_MAX])
{
	Dl_info self;
	size_t length;

	if (!dladdr(&in_force, &self) || !self.dli_fname)
		return false;
	length = strlen(self.dli_fname);
	if (length < 3 || length + 3 > PATH_MAX || strcmp(self.dli_fname + length - 3, ".so") != 0)
		return false;
	snprintf(path, PATH_MAX, "%.*s.conf", (int) (length - 3), self.dli_fname);
	return true;
}

static bool is_same_file(const struct stat *one, const struct stat *other)
{
	return one->st_ino == other->st_ino && one->st_size == other->st_size &&
	       one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

enum settings_change settings_get(struct settings *settings, char *problem, size_t problem_size)
{
	char path[PATH_MAX];
	struct stat now = {0};
	struct settings found;
	enum settings_change change = SAME;
	bool has_file = find_path(path) && stat(path, &now) == 0;

	pthread_mutex_lock(&lock);
	if (!is_read)
		in_force = DEFAULTS;
	if (!has_file)
		now = (struct stat) {0};
	if (!is_read || !is_same_file(&now, &seen)) {
		found = DEFAULTS;
		change = !has_file || read_file(path, &found, problem, problem_size) ? LOADED : DAMAGED;
		if (change == LOADED)
			in_force = found;
		seen = now;
		is_read = true;
	}
	*settings = in_force;
	pthread_mutex_unlock(&lock);
	return change;
}
