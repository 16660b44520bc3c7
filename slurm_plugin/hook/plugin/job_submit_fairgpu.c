/* FairGPU's submit hook inside slurmctld, compiled: asks the hook server about a submission and applies its answer.
 *
 * It knows no policy and behaves like ../lua/fairgpu.lua: on any doubt (no server, late, a damaged answer) the job
 * passes unchanged, and after a few failures in a row nobody is asked for a while. Only Slurm's public headers are
 * used; what they lack is looked up by name when slurmctld loads the plugin, and done without if it is not there.
 * Use: docs/reference/hook.md. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>
#include <slurm/spank.h>

#include "breaker.h"
#include "exchange.h"
#include "release.h"
#include "settings.h"
#include "wire.h"

#define EXPORT __attribute__((visibility("default")))
#define WEAK __attribute__((weak))

EXPORT const char plugin_name[] = "FairGPU submit hook";
EXPORT const char plugin_type[] = "job_submit/fairgpu";

/* slurmctld frees the message with its own allocator. */
extern char *slurm_xstrdup(const char *text) WEAK;
extern void slurm_xfree(void **pointer) WEAK;
/* Of slurmctld itself, unchanged from 22.05 to 26.05. The record of a job is private, its copy is public. */
extern char *default_part_name WEAK;
extern void *acct_db_conn WEAK;
extern int assoc_mgr_fill_in_user(void *db_conn, slurmdb_user_rec_t *user, int enforce, slurmdb_user_rec_t **found,
				  bool is_locked) WEAK;
extern job_desc_msg_t *copy_job_record_to_job_desc(void *job) WEAK;
extern void slurm_free_job_desc_msg(job_desc_msg_t *desc) WEAK;
#pragma weak slurm_info
#pragma weak slurm_error

#define LOG_INFO(...) do { if (slurm_info) slurm_info("fairgpu: " __VA_ARGS__); } while (0)
#define LOG_ERROR(...) do { if (slurm_error) slurm_error("fairgpu: " __VA_ARGS__); } while (0)

EXPORT int init(void)
{
	char built_for[16], running[16];

	release_names(built_for, running);
	if (is_our_release())
		LOG_INFO("submit hook for Slurm %s", running);
	else
		LOG_ERROR("disabled, jobs pass unchanged: built for Slurm %s, this is %s; run 'fairgpu hook build'",
			  built_for, running);
	return SLURM_SUCCESS;
}

/* One question ------------------------------------------------------------------------------------------------- */

static void get_settings(struct settings *settings)
{
	char problem[256];

	switch (settings_get(settings, problem, sizeof(problem))) {
	case LOADED:
		breaker_reset();
		break;
	case DAMAGED:
		LOG_ERROR("settings not used: %s", problem);
		break;
	case SAME:
		break;
	}
}

static void note_failure(const struct settings *settings, const char *reason)
{
	unsigned n_failed = breaker_failure(settings->failures, monotonic_us(), settings->pause_us);

	if (n_failed <= settings->failures)
		LOG_INFO("no answer (%s), the job passes unchanged", reason);
}

/* Takes the frame. False without a usable answer. */
static bool ask(const struct settings *settings, struct frame *frame, struct answer *answer)
{
	char reason[96] = "no memory";
	int64_t now_us = monotonic_us();
	bool is_answered = false;

	if (breaker_allows(now_us, settings->pause_us)) {
		is_answered = frame_end(frame) && exchange(settings->socket, frame, now_us + settings->deadline_us, answer,
							   reason, sizeof(reason));
		if (!is_answered)
			note_failure(settings, reason);
		else if (breaker_success(settings->failures))
			LOG_INFO("the hook server answers again");
	}
	frame_free(frame);
	return is_answered;
}

/* A plugin before us (lua) may have said something to the user already. */
static void tell(const char *message, char **err_msg)
{
	char both[2 * MAX_MESSAGE + 2];

	if (!*message || !err_msg || !slurm_xstrdup || !slurm_xfree)
		return;
	if (!*err_msg) {
		*err_msg = slurm_xstrdup(message);
		return;
	}
	snprintf(both, sizeof(both), "%.*s\n%s", MAX_MESSAGE, *err_msg, message);
	slurm_xfree((void **) err_msg);
	*err_msg = slurm_xstrdup(both);
}

static int conclude(const struct answer *answer, char **err_msg)
{
	tell(answer->message, err_msg);
	return answer->verdict == REJECT ? ESLURM_ACCESS_DENIED : SLURM_SUCCESS;
}

/* Submissions -------------------------------------------------------------------------------------------------- */

static void add16(struct frame *frame, const char *name, uint16_t value)
{
	if (value < NO_VAL16)
		frame_number(frame, name, value);
}

static void add32(struct frame *frame, const char *name, uint32_t value)
{
	if (value < NO_VAL)
		frame_number(frame, name, value);
}

static void add_account(struct frame *frame, const char *account, uint32_t uid)
{
	slurmdb_user_rec_t user;

	if (account && *account) {
		frame_text(frame, "account", account);
		return;
	}
	if (!assoc_mgr_fill_in_user)
		return;
	memset(&user, 0, sizeof(user));
	user.uid = uid;
	/* The text belongs to Slurm and is copied into the frame at once, as Slurm's own plugins do it. */
	if (assoc_mgr_fill_in_user(&acct_db_conn ? acct_db_conn : NULL, &user, 0, NULL, false) == SLURM_SUCCESS)
		frame_text(frame, "account", user.default_acct);
}

static void add_partition(struct frame *frame, const char *partition)
{
	if (partition && *partition)
		frame_text(frame, "partition", partition);
	else if (&default_part_name)
		frame_text(frame, "partition", default_part_name);
}

/* Only a job that names a QOS can name one of ours. */
static void add_band(struct frame *frame, const char *qos, uint16_t requeue, bool is_batch)
{
	if (!qos || !*qos)
		return;
	frame_text(frame, "qos", qos);
	add16(frame, "requeue", requeue);
	frame_number(frame, "batch", is_batch);
}

static void add_request(struct frame *frame, const job_desc_msg_t *desc)
{
	frame_text(frame, "comment", desc->comment);
	frame_text(frame, "wckey", desc->wckey);
	frame_text(frame, "tres_per_node", desc->tres_per_node);
	frame_text(frame, "tres_per_job", desc->tres_per_job);
	frame_text(frame, "tres_per_task", desc->tres_per_task);
	frame_text(frame, "tres_per_socket", desc->tres_per_socket);
	frame_text(frame, "array_inx", desc->array_inx);
	frame_text(frame, "dependency", desc->dependency);
	add32(frame, "min_nodes", desc->min_nodes);
	add32(frame, "num_tasks", desc->num_tasks);
	add16(frame, "cpus_per_task", desc->cpus_per_task);
	add32(frame, "min_cpus", desc->min_cpus);
	add16(frame, "sockets_per_node", desc->sockets_per_node);
	add32(frame, "priority", desc->priority);
	if (desc->begin_time > 0)
		frame_number(frame, "begin_time", (uint64_t) desc->begin_time);
	if (desc->pn_min_memory < NO_VAL64)
		frame_number(frame, desc->pn_min_memory & MEM_PER_CPU ? "min_mem_per_cpu" : "min_mem_per_node",
			     desc->pn_min_memory & ~MEM_PER_CPU);
	add_band(frame, desc->qos, desc->requeue, desc->script != NULL);
}

/* slurmctld frees the text with its own allocator. */
static void set_qos(job_desc_msg_t *desc, const char *qos)
{
	if (!*qos || !slurm_xstrdup || !slurm_xfree)
		return;
	slurm_xfree((void **) &desc->qos);
	desc->qos = slurm_xstrdup(qos);
}

EXPORT int job_submit(job_desc_msg_t *desc, uint32_t submit_uid, char **err_msg)
{
	struct settings settings;
	struct frame frame;
	struct answer answer;
	uint32_t uid;

	if (!is_our_release())
		return SLURM_SUCCESS;
	get_settings(&settings);
	uid = desc->user_id < NO_VAL ? desc->user_id : submit_uid;
	frame_begin(&frame, 'S');
	frame_number(&frame, "uid", uid);
	add_account(&frame, desc->account, uid);
	add_partition(&frame, desc->partition);
	add_request(&frame, desc);
	if (!ask(&settings, &frame, &answer))
		return SLURM_SUCCESS;
	if (answer.site_factor)
		desc->site_factor = NICE_OFFSET + answer.site_factor;
	set_qos(desc, answer.qos);
	return conclude(&answer, err_msg);
}

/* Updates ------------------------------------------------------------------------------------------------------ */

static bool is_trusted(const struct settings *settings, uint32_t uid)
{
	for (size_t i = 0; i < settings->n_uids; i++)
		if (settings->uids[i] == uid)
			return true;
	return uid == 0;
}

static bool is_changed(const char *new, const char *old)
{
	return new && strcmp(new, old ? old : "") != 0;
}

static const char *either(const char *new, const char *old)
{
	return new ? new : old;
}

/* A change of the text that carries the tag, of the QOS, or to "no requeue" is asked about. The job's owner is whom the
 * tag serves, whoever writes it. */
static int judge_change(const struct settings *settings, const job_desc_msg_t *desc, const job_desc_msg_t *old,
			uint32_t by, char **err_msg)
{
	bool is_tag = is_changed(desc->comment, old->comment) || is_changed(desc->wckey, old->wckey);
	bool is_moved = is_changed(desc->qos, old->qos), is_band = is_moved || desc->requeue == 0;
	struct frame frame;
	struct answer answer;

	if (!is_tag && !is_band)
		return SLURM_SUCCESS;
	frame_begin(&frame, 'M');
	frame_number(&frame, "uid", old->user_id);
	frame_number(&frame, "by", by);
	frame_text(&frame, "account", either(desc->account, old->account));
	frame_text(&frame, "partition", either(desc->partition, old->partition));
	frame_text(&frame, "comment", either(desc->comment, old->comment));
	frame_text(&frame, "wckey", either(desc->wckey, old->wckey));
	if (is_band) {
		add_band(&frame, either(desc->qos, old->qos), desc->requeue < NO_VAL16 ? desc->requeue : old->requeue,
			 old->script || old->script_buf);
		frame_number(&frame, "moved", is_moved);
	}
	return ask(settings, &frame, &answer) ? conclude(&answer, err_msg) : SLURM_SUCCESS;
}

/* As slurmctld frees such a copy: the strings of the environment are one block. */
static void free_copy(job_desc_msg_t *copy)
{
	if (copy->environment) {
		slurm_xfree((void **) &copy->environment[0]);
		slurm_xfree((void **) &copy->environment);
	}
	copy->env_size = 0;
	slurm_free_job_desc_msg(copy);
}

static int modify(const job_desc_msg_t *desc, void *job, uint32_t uid, char **err_msg)
{
	static atomic_bool is_told;
	struct settings settings;
	job_desc_msg_t *old;
	int result;

	/* Cheap questions first: our own rebalancer's updates come here too, under slurmctld's write lock. */
	if (!is_our_release() || (!desc->comment && !desc->wckey && !desc->qos && desc->requeue != 0))
		return SLURM_SUCCESS;
	get_settings(&settings);
	if (is_trusted(&settings, uid))
		return SLURM_SUCCESS;
	if (!copy_job_record_to_job_desc || !slurm_free_job_desc_msg || !slurm_xfree) {
		if (!atomic_exchange(&is_told, true))
			LOG_ERROR("this slurmctld does not show jobs to plugins: updates pass unchanged");
		return SLURM_SUCCESS;
	}
	old = copy_job_record_to_job_desc(job);
	if (!old)
		return SLURM_SUCCESS;
	result = judge_change(&settings, desc, old, uid, err_msg);
	free_copy(old);
	return result;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
EXPORT int job_modify(job_desc_msg_t *desc, void *job, uint32_t uid, char **err_msg)
{
	return modify(desc, job, uid, err_msg);
}
#else
EXPORT int job_modify(job_desc_msg_t *desc, void *job, uint32_t uid)
{
	return modify(desc, job, uid, NULL);
}
#endif
