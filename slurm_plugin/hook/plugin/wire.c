#define _GNU_SOURCE
#include "wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FIELDS = 64, FIRST_ROOM = 2048 };

struct slice {
	const char *start;
	size_t length;
};

static void append(struct frame *frame, const char *bytes, size_t length)
{
	if (frame->is_failed)
		return;
	if (frame->room - frame->used < length) {
		size_t room = 2 * (frame->used + length) + FIRST_ROOM;
		char *grown = realloc(frame->bytes, room);
		if (!grown) {
			frame->is_failed = true;
			return;
		}
		frame->bytes = grown;
		frame->room = room;
	}
	memcpy(frame->bytes + frame->used, bytes, length);
	frame->used += length;
}

static void append_netstring(struct frame *frame, const char *bytes, size_t length)
{
	char digits[24];

	append(frame, digits, (size_t) snprintf(digits, sizeof(digits), "%zu:", length));
	append(frame, bytes, length);
	append(frame, ",", 1);
}

void frame_begin(struct frame *frame, char op)
{
	char header[HEADER_BYTES + 1];

	*frame = (struct frame) {0};
	snprintf(header, sizeof(header), "FG1%c%08d", op, 0);
	append(frame, header, HEADER_BYTES);
}

void frame_text(struct frame *frame, const char *name, const char *value)
{
	if (!value || !*value)
		return;
	append_netstring(frame, name, strlen(name));
	append_netstring(frame, value, strnlen(value, MAX_TEXT));
}

void frame_number(struct frame *frame, const char *name, uint64_t value)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%" PRIu64, value);
	frame_text(frame, name, digits);
}

bool frame_end(struct frame *frame)
{
	char digits[24];
	size_t length = frame->used - HEADER_BYTES;

	if (frame->is_failed || length > 99999999)
		return false;
	snprintf(digits, sizeof(digits), "%08zu", length);
	memcpy(frame->bytes + 4, digits, 8);
	return true;
}

void frame_free(struct frame *frame)
{
	free(frame->bytes);
	*frame = (struct frame) {0};
}

/* Digits as a number; false if there are none, too many, or anything else. */
static bool read_digits(const char *text, size_t length, size_t most, uint64_t *value)
{
	*value = 0;
	if (length < 1 || length > most)
		return false;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		*value = *value * 10 + (uint64_t) (text[i] - '0');
	}
	return true;
}

int parse_header(const char header[HEADER_BYTES])
{
	uint64_t length;

	if (memcmp(header, "FG1R", 4) != 0 || !read_digits(header + 4, 8, 8, &length) || length > MAX_REPLY)
		return -1;
	return (int) length;
}

static bool take_netstring(struct slice *rest, struct slice *taken)
{
	const char *colon = memchr(rest->start, ':', rest->length);
	uint64_t length;
	size_t head;

	if (!colon)
		return false;
	head = (size_t) (colon - rest->start) + 1;
	if (!read_digits(rest->start, head - 1, 6, &length) || rest->length - head < length + 1 || colon[1 + length] != ',')
		return false;
	*taken = (struct slice) {colon + 1, (size_t) length};
	rest->start += head + length + 1;
	rest->length -= head + length + 1;
	return true;
}

static bool is_same(struct slice one, struct slice other)
{
	return one.length == other.length && memcmp(one.start, other.start, one.length) == 0;
}

static bool is_text(struct slice slice, const char *text)
{
	return is_same(slice, (struct slice) {text, strlen(text)});
}

static bool read_verdict(struct slice value, struct answer *answer)
{
	if (is_text(value, "accept"))
		answer->verdict = ACCEPT;
	else if (is_text(value, "reject"))
		answer->verdict = REJECT;
	else
		return is_text(value, "unchanged");
	return true;
}

static bool read_factor(struct slice value, struct answer *answer)
{
	uint64_t factor;

	if (!read_digits(value.start, value.length, 10, &factor) || factor < 1 || factor > MAX_FACTOR)
		return false;
	answer->site_factor = (uint32_t) factor;
	return true;
}

/* Only what our own names are made of. */
static bool read_qos(struct slice value, struct answer *answer)
{
	if (value.length < 1 || value.length > MAX_QOS)
		return false;
	for (size_t i = 0; i < value.length; i++) {
		char c = value.start[i];
		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-'))
			return false;
	}
	memcpy(answer->qos, value.start, value.length);
	answer->qos[value.length] = '\0';
	return true;
}

/* For the terminal of a user: anything but printable ASCII becomes a question mark. */
static bool read_message(struct slice value, struct answer *answer)
{
	size_t length = value.length < MAX_MESSAGE ? value.length : MAX_MESSAGE;

	for (size_t i = 0; i < length; i++)
		answer->message[i] = value.start[i] >= ' ' && value.start[i] <= '~' ? value.start[i] : '?';
	answer->message[length] = '\0';
	return true;
}

static bool read_field(struct slice name, struct slice value, struct answer *answer)
{
	if (is_text(name, "verdict"))
		return read_verdict(value, answer);
	if (is_text(name, "site_factor"))
		return read_factor(value, answer);
	if (is_text(name, "qos"))
		return read_qos(value, answer);
	if (is_text(name, "user_msg"))
		return read_message(value, answer);
	return true;
}

bool parse_answer(const char *body, size_t length, struct answer *answer)
{
	struct slice names[MAX_FIELDS], rest = {body, length}, value;
	size_t n_names = 0;
	bool has_verdict = false;

	*answer = (struct answer) {.verdict = UNCHANGED};
	while (rest.length > 0) {
		if (n_names == MAX_FIELDS || !take_netstring(&rest, &names[n_names]) || !take_netstring(&rest, &value))
			return false;
		for (size_t i = 0; i < n_names; i++)
			if (is_same(names[i], names[n_names]))
				return false;
		if (!read_field(names[n_names], value, answer))
			return false;
		has_verdict = has_verdict || is_text(names[n_names], "verdict");
		n_names++;
	}
	return has_verdict && ((answer->site_factor == 0 && !*answer->qos) || answer->verdict == ACCEPT);
}
