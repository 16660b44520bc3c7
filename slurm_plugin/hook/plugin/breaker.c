#include "breaker.h"

#include <stdatomic.h>

static atomic_uint n_failed;
static _Atomic int64_t open_until_us; /* 0: closed */

bool breaker_allows(int64_t now_us, int64_t pause_us)
{
	int64_t until_us = atomic_load(&open_until_us);

	if (until_us == 0)
		return true;
	/* Of several callers after the pause one tries, the others pass until it knows. */
	return now_us >= until_us && atomic_compare_exchange_strong(&open_until_us, &until_us, now_us + pause_us);
}

bool breaker_success(unsigned limit)
{
	atomic_store(&open_until_us, 0);
	return atomic_exchange(&n_failed, 0) >= limit;
}

unsigned breaker_failure(unsigned limit, int64_t now_us, int64_t pause_us)
{
	unsigned n = atomic_fetch_add(&n_failed, 1) + 1;

	if (n >= limit)
		atomic_store(&open_until_us, now_us + pause_us);
	return n;
}

void breaker_reset(void)
{
	atomic_store(&n_failed, 0);
	atomic_store(&open_until_us, 0);
}
