/* After some failures in a row nobody is asked for a while; then one caller tries. Shared by all threads. */
#ifndef FAIRGPU_BREAKER_H
#define FAIRGPU_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

bool breaker_allows(int64_t now_us, int64_t pause_us);
/* True if the breaker was open before. */
bool breaker_success(unsigned limit);
/* Failures in a row so far, this one included; from limit on the breaker is open. */
unsigned breaker_failure(unsigned limit, int64_t now_us, int64_t pause_us);
void breaker_reset(void);

#endif
