/* One question, one answer, on a connection of its own and within one deadline. */
#ifndef FAIRGPU_EXCHANGE_H
#define FAIRGPU_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

int64_t monotonic_us(void);

/* False without a usable answer; reason says why. */
bool exchange(const char *path, const struct frame *request, int64_t deadline_us, struct answer *answer,
	      char *reason, size_t reason_size);

#endif
