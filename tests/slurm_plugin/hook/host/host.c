/* Plays slurmctld's part for the compiled hook: host STOCK_PLUGIN PLUGIN, the calls come on stdin.
 *
 *   submit FIELD=HEX FIELD#NUMBER ...        a submission by uid 1000
 *   modify uid#N FIELD... old.FIELD...       an update of a job that has the old fields
 *   sleep SECONDS
 *   storm threads#N calls#N FIELD...         N threads submit, each so often
 *
 * Each call prints: rc, milliseconds, the fields that were set, what the user and the log were told. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>

#include "stock.h"

#define HAS_MODIFY_MESSAGE (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0))

enum { MAGIC = 0x42, HEAD = 16 };

/* What slurmctld gives to its plugins --------------------------------------------------------------------------- */

char *default_part_name;
void *acct_db_conn = &acct_db_conn;
static char *default_account;
static atomic_long n_texts;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char logged[8192];

/* As Slurm's allocator: a header with a mark, so that a text of another allocator is noticed. */
static void *allocate(const void *bytes, size_t length)
{
	char *block = malloc(HEAD + length);

	block[0] = MAGIC;
	memcpy(block + HEAD, bytes, length);
	atomic_fetch_add(&n_texts, 1);
	return block + HEAD;
}

char *slurm_xstrdup(const char *text)
{
	return allocate(text, strlen(text) + 1);
}

void slurm_xfree(void **pointer)
{
	char *block = *pointer;

	if (!block)
		return;
	if (block[-HEAD] != MAGIC)
		abort();
	free(block - HEAD);
	atomic_fetch_sub(&n_texts, 1);
	*pointer = NULL;
}

static void write_log(const char *format, va_list values)
{
	pthread_mutex_lock(&log_lock);
	size_t used = strlen(logged);
	if (used + 512 < sizeof(logged)) {
		vsnprintf(logged + used, 500, format, values);
		strcat(logged, " ");
	}
	pthread_mutex_unlock(&log_lock);
}

void slurm_info(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	write_log(format, values);
	va_end(values);
}

void slurm_error(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	write_log(format, values);
	va_end(values);
}

int assoc_mgr_fill_in_user(void *db_conn, slurmdb_user_rec_t *user, int enforce, slurmdb_user_rec_t **found, bool is_locked)
{
	if (db_conn != acct_db_conn || enforce || found || is_locked)
		abort();
	user->default_acct = default_account;
	return SLURM_SUCCESS;
}

static void free_texts(job_desc_msg_t *desc);

#ifndef NO_JOB_COPY
job_desc_msg_t *copy_job_record_to_job_desc(void *job)
{
	const job_desc_msg_t *record = job;
	job_desc_msg_t *copy = malloc(sizeof(*copy));

	*copy = *record;
#define COPY(field) copy->field = record->field ? slurm_xstrdup(record->field) : NULL
	COPY(account);
	COPY(partition);
	COPY(comment);
	COPY(wckey);
	COPY(qos);
	COPY(script);
	/* As slurmctld makes it: one block for all strings, which slurm_free_job_desc_msg would free one by one. */
	char *block = allocate("A=1\0B=2", 8);
	char *strings[] = {block, block + 4, NULL};
	copy->environment = allocate(strings, sizeof(strings));
	copy->env_size = 2;
	return copy;
}
#endif

void slurm_free_job_desc_msg(job_desc_msg_t *desc)
{
	free_texts(desc);
	for (char **text = desc->environment; text && *text; text++)
		slurm_xfree((void **) text);
	slurm_xfree((void **) &desc->environment);
	free(desc);
}

/* Job descriptions ---------------------------------------------------------------------------------------------- */

typedef struct {
	const char *name;
	size_t offset;
} field_t;

#define FIELD(name) {#name, offsetof(job_desc_msg_t, name)}
static const field_t TEXTS[] = {
	FIELD(account), FIELD(partition), FIELD(comment), FIELD(wckey), FIELD(qos), FIELD(script), FIELD(array_inx),
	FIELD(dependency), FIELD(tres_per_node), FIELD(tres_per_job), FIELD(tres_per_task), FIELD(tres_per_socket),
};
static const field_t NUMBERS16[] = {FIELD(cpus_per_task), FIELD(sockets_per_node), FIELD(requeue)};
static const field_t NUMBERS32[] = {
	FIELD(min_nodes), FIELD(num_tasks), FIELD(min_cpus), FIELD(priority), FIELD(user_id), FIELD(time_limit),
};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const field_t *find(const field_t *list, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].name, name) == 0)
			return &list[i];
	return NULL;
}

static void *at(job_desc_msg_t *desc, const field_t *field)
{
	return (char *) desc + field->offset;
}

static void clear(job_desc_msg_t *desc)
{
	memset(desc, 0, sizeof(*desc));
	for (size_t i = 0; i < COUNT(NUMBERS16); i++)
		*(uint16_t *) at(desc, &NUMBERS16[i]) = NO_VAL16;
	for (size_t i = 0; i < COUNT(NUMBERS32); i++)
		*(uint32_t *) at(desc, &NUMBERS32[i]) = NO_VAL;
	desc->pn_min_memory = NO_VAL64;
	desc->site_factor = NO_VAL;
}

static void free_texts(job_desc_msg_t *desc)
{
	for (size_t i = 0; i < COUNT(TEXTS); i++)
		slurm_xfree((void **) at(desc, &TEXTS[i]));
}

static void set_number(job_desc_msg_t *desc, const char *name, unsigned long long value)
{
	const field_t *field;

	if ((field = find(NUMBERS16, COUNT(NUMBERS16), name)))
		*(uint16_t *) at(desc, field) = (uint16_t) value;
	else if ((field = find(NUMBERS32, COUNT(NUMBERS32), name)))
		*(uint32_t *) at(desc, field) = (uint32_t) value;
	else if (strcmp(name, "begin_time") == 0)
		desc->begin_time = (time_t) value;
	else if (strcmp(name, "min_mem_per_node") == 0)
		desc->pn_min_memory = value;
	else if (strcmp(name, "min_mem_per_cpu") == 0)
		desc->pn_min_memory = value | MEM_PER_CPU;
	else {
		fprintf(stderr, "no number %s\n", name);
		exit(2);
	}
}

static void set_text(job_desc_msg_t *desc, const char *name, const char *hex)
{
	const field_t *field = find(TEXTS, COUNT(TEXTS), name);
	size_t length = strlen(hex) / 2;
	char *text = calloc(1, length + 1), **target = NULL;

	for (size_t i = 0; i < length; i++) {
		unsigned byte;
		char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
		sscanf(pair, "%x", &byte);
		text[i] = (char) byte;
	}
	if (field)
		target = at(desc, field);
	else if (strcmp(name, "default_account") == 0)
		target = &default_account;
	else if (strcmp(name, "default_partition") == 0)
		target = &default_part_name;
	if (!target) {
		fprintf(stderr, "no text %s\n", name);
		exit(2);
	}
	slurm_xfree((void **) target);
	*target = slurm_xstrdup(text);
	free(text);
}

typedef struct {
	job_desc_msg_t desc, old;
	unsigned uid, threads, calls;
} call_t;

static void read_call(char *words, call_t *call)
{
	char *rest = NULL;

	clear(&call->desc);
	clear(&call->old);
	call->uid = 1000;
	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		size_t end = strcspn(word, "=#");
		bool is_text = word[end] == '=', is_old = strncmp(word, "old.", 4) == 0;
		job_desc_msg_t *target = is_old ? &call->old : &call->desc;
		const char *name = is_old ? word + 4 : word, *value = word + end + 1;

		word[end] = '\0';
		if (is_text)
			set_text(target, name, value);
		else if (strcmp(name, "uid") == 0)
			call->uid = (unsigned) atol(value);
		else if (strcmp(name, "threads") == 0)
			call->threads = (unsigned) atol(value);
		else if (strcmp(name, "calls") == 0)
			call->calls = (unsigned) atol(value);
		else
			set_number(target, name, strtoull(value, NULL, 10));
	}
}

static void free_call(call_t *call)
{
	free_texts(&call->desc);
	free_texts(&call->old);
	slurm_xfree((void **) &default_account);
	slurm_xfree((void **) &default_part_name);
}

/* Calls --------------------------------------------------------------------------------------------------------- */

static int (*job_submit)(job_desc_msg_t *, uint32_t, char **);
#if HAS_MODIFY_MESSAGE
static int (*job_modify)(job_desc_msg_t *, void *, uint32_t, char **);
#else
static int (*job_modify)(job_desc_msg_t *, void *, uint32_t);
#endif

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec * 1e3 + (double) now.tv_nsec / 1e6;
}

static void print_call(int rc, double ms, const job_desc_msg_t *before, const job_desc_msg_t *after, char **told)
{
	job_desc_msg_t same = *after;

	same.site_factor = before->site_factor;
	printf("%d\t%.3f\t", rc, ms);
	if (after->site_factor != NO_VAL)
		printf("site_factor=%u", after->site_factor - NICE_OFFSET);
	if (same.qos != before->qos)
		printf("%sqos=%s", after->site_factor != NO_VAL ? " " : "", after->qos);
	same.qos = before->qos;
	if (memcmp(&same, before, sizeof(same)) != 0)
		printf(" something else");
	for (char *c = *told; c && *c; c++)
		if (*c == '\n')
			*c = '|';
	printf("\t%s\t%s\n", *told ? *told : "", logged);
	fflush(stdout);
	logged[0] = '\0';
	slurm_xfree((void **) told);
}

static void one_call(call_t *call, bool is_modify)
{
	static job_desc_msg_t before;
	char *told = NULL;
	double began_ms;
	int rc;

	memcpy(&before, &call->desc, sizeof(before));
	if (getenv("HOST_TOLD"))
		told = slurm_xstrdup(getenv("HOST_TOLD"));
	began_ms = now_ms();
	if (!is_modify)
		rc = job_submit(&call->desc, call->uid, &told);
	else
#if HAS_MODIFY_MESSAGE
		rc = job_modify(&call->desc, &call->old, call->uid, &told);
#else
		rc = job_modify(&call->desc, &call->old, call->uid);
#endif
	print_call(rc, now_ms() - began_ms, &before, &call->desc, &told);
}

static long resident_kib(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (file && fscanf(file, "%*s %ld", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static long open_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	long count = 0;

	while (folder && readdir(folder))
		count++;
	if (folder)
		closedir(folder);
	return count;
}

typedef struct {
	const call_t *call;
	double slowest_ms;
	unsigned accepted, rejected, factors;
} worker_t;

static void *work(void *context)
{
	worker_t *worker = context;

	for (unsigned i = 0; i < worker->call->calls; i++) {
		job_desc_msg_t desc = worker->call->desc;
		char *told = NULL;
		double began_ms = now_ms(), took_ms;
		int rc = job_submit(&desc, worker->call->uid, &told);

		took_ms = now_ms() - began_ms;
		if (took_ms > worker->slowest_ms)
			worker->slowest_ms = took_ms;
		worker->accepted += rc == SLURM_SUCCESS;
		worker->rejected += rc == ESLURM_ACCESS_DENIED;
		worker->factors += desc.site_factor != NO_VAL;
		slurm_xfree((void **) &told);
	}
	return NULL;
}

static void storm(const call_t *call)
{
	pthread_t threads[64];
	worker_t workers[64] = {0}, sum = {0};
	long before_kib = resident_kib(), texts = atomic_load(&n_texts), files = open_files();

	for (unsigned i = 0; i < call->threads; i++) {
		workers[i].call = call;
		pthread_create(&threads[i], NULL, work, &workers[i]);
	}
	for (unsigned i = 0; i < call->threads; i++) {
		pthread_join(threads[i], NULL);
		sum.accepted += workers[i].accepted;
		sum.rejected += workers[i].rejected;
		sum.factors += workers[i].factors;
		if (workers[i].slowest_ms > sum.slowest_ms)
			sum.slowest_ms = workers[i].slowest_ms;
	}
	printf("accepted=%u rejected=%u factors=%u\t%.3f\tgrown_kib=%ld texts=%ld files=%ld\t\t%s\n", sum.accepted, sum.rejected,
	       sum.factors, sum.slowest_ms, resident_kib() - before_kib, atomic_load(&n_texts) - texts, open_files() - files,
	       logged);
	fflush(stdout);
	logged[0] = '\0';
}

/* As src/common/plugin.c: open, compare the version, find the functions, call init. */
static void load(const char *stock, const char *plugin)
{
	void *ours, *first = dlopen(stock, RTLD_LAZY);
	const uint32_t *version;
	int (*init)(void);

	ours = first ? dlopen(plugin, RTLD_LAZY) : NULL;
	if (!ours) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	version = dlsym(ours, "plugin_version");
	if (!dlsym(ours, "plugin_name") || strcmp(dlsym(ours, "plugin_type"), "job_submit/fairgpu") != 0 ||
	    *version != RUNNING) {
		fprintf(stderr, "fatal: incompatible plugin version %x\n", *version);
		exit(3);
	}
	*(void **) &init = dlsym(ours, "init");
	*(void **) &job_submit = dlsym(ours, "job_submit");
	*(void **) &job_modify = dlsym(ours, "job_modify");
	if (!job_submit || !job_modify || init() != SLURM_SUCCESS)
		exit(3);
	fputs(logged, stderr);
	logged[0] = '\0';
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t room = 0;
	static call_t call;

	if (argc != 3)
		return 2;
	load(argv[1], argv[2]);
	while (getline(&line, &room, stdin) > 0) {
		char *words = line + strcspn(line, " \n");

		line[strcspn(line, "\n")] = '\0';
		if (*words)
			*words++ = '\0';
		if (strcmp(line, "sleep") == 0) {
			usleep((useconds_t) (atof(words) * 1e6));
			continue;
		}
		read_call(words, &call);
		if (strcmp(line, "storm") == 0)
			storm(&call);
		else
			one_call(&call, strcmp(line, "modify") == 0);
		free_call(&call);
	}
	free(line);
	return 0;
}
