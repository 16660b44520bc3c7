/* Frames of docs/reference/wire-protocol.md: the request is built, the answer checked as a whole. */
#ifndef FAIRGPU_WIRE_H
#define FAIRGPU_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	HEADER_BYTES = 12,
	MAX_REPLY = 16384,   /* bytes of an answer's body */
	MAX_TEXT = 65540,    /* bytes of a field that are sent: more than the server reads */
	MAX_MESSAGE = 1000,
	MAX_FACTOR = 2147483645, /* largest site factor that Slurm takes */
	MAX_QOS = 255,       /* bytes of a QOS's name */
};

/* A request that grows. After a failed allocation it stays failed and nothing is sent. */
struct frame {
	char *bytes;
	size_t used;
	size_t room;
	bool is_failed;
};

enum verdict { UNCHANGED, ACCEPT, REJECT };

struct answer {
	enum verdict verdict;
	uint32_t site_factor; /* 0: none */
	char qos[MAX_QOS + 1]; /* empty: none */
	char message[MAX_MESSAGE + 1];
};

void frame_begin(struct frame *frame, char op);
/* Absent (NULL) and empty texts are left out. */
void frame_text(struct frame *frame, const char *name, const char *value);
void frame_number(struct frame *frame, const char *name, uint64_t value);
/* Writes the length into the header; false if the request cannot be sent. */
bool frame_end(struct frame *frame);
void frame_free(struct frame *frame);

/* Length of the body that a header announces, -1 if it is no answer's. */
int parse_header(const char header[HEADER_BYTES]);
/* False if any byte is out of place or any value out of range; answer is undefined then. */
bool parse_answer(const char *body, size_t length, struct answer *answer);

#endif
