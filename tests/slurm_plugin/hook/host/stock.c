/* Plays one of Slurm's own plugins: what the compiled hook copies its version from. */
#include <stdint.h>

#include <slurm/slurm_version.h>

#include "stock.h"


const char plugin_name[] = "stock";
const char plugin_type[] = "auth/stock";
const uint32_t plugin_version = RUNNING;
