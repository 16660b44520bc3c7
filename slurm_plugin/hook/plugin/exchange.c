#define _GNU_SOURCE
#include "exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum step { DONE, LATE, CLOSED, BROKEN };

int64_t monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Waits until the socket is ready; what a slow server uses up here is gone for the steps after. */
static enum step wait_for(int fd, short events, int64_t deadline_us)
{
	struct pollfd poll = {.fd = fd, .events = events};

	for (;;) {
		int64_t left_us = deadline_us - monotonic_us();
		struct timespec timeout = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
		int n_ready;

		if (left_us <= 0)
			return LATE;
		n_ready = ppoll(&poll, 1, &timeout, NULL);
		if (n_ready > 0)
			return DONE;
		if (n_ready < 0 && errno != EINTR)
			return BROKEN;
	}
}

static enum step move_all(int fd, char *bytes, size_t length, bool is_send, int64_t deadline_us)
{
	while (length > 0) {
		ssize_t moved;
		enum step ready = wait_for(fd, is_send ? POLLOUT : POLLIN, deadline_us);

		if (ready != DONE)
			return ready;
		moved = is_send ? send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, bytes, length, MSG_DONTWAIT);
		if (moved == 0)
			return CLOSED;
		if (moved < 0 && errno != EINTR && errno != EAGAIN)
			return BROKEN;
		if (moved > 0) {
			bytes += moved;
			length -= (size_t) moved;
		}
	}
	return DONE;
}

static bool explain(enum step step, char *reason, size_t size)
{
	char text[64];

	if (step == LATE)
		snprintf(reason, size, "late");
	else if (step == CLOSED)
		snprintf(reason, size, "closed");
	else if (step == BROKEN)
		snprintf(reason, size, "%s", strerror_r(errno, text, sizeof(text)));
	return step == DONE;
}

static bool ask(int fd, const struct frame *request, int64_t deadline_us, struct answer *answer, char *reason, size_t size)
{
	char header[HEADER_BYTES], body[MAX_REPLY];
	int length;

	if (!explain(move_all(fd, request->bytes, request->used, true, deadline_us), reason, size) ||
	    !explain(move_all(fd, header, sizeof(header), false, deadline_us), reason, size))
		return false;
	length = parse_header(header);
	if (length < 0) {
		snprintf(reason, size, "not an answer");
		return false;
	}
	if (!explain(move_all(fd, body, (size_t) length, false, deadline_us), reason, size))
		return false;
	if (!parse_answer(body, (size_t) length, answer)) {
		snprintf(reason, size, "an answer that makes no sense");
		return false;
	}
	return true;
}

bool exchange(const char *path, const struct frame *request, int64_t deadline_us, struct answer *answer,
	      char *reason, size_t reason_size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bool is_answered = false;

	if (fd < 0)
		return explain(BROKEN, reason, reason_size);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	/* A Unix socket connects at once or not at all: with a full backlog (EAGAIN) there is nothing to wait for. */
	if (connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
		explain(BROKEN, reason, reason_size);
	else
		is_answered = ask(fd, request, deadline_us, answer, reason, reason_size);
	close(fd);
	return is_answered;
}
