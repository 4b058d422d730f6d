// What nvcc includes by itself.
#pragma once

#include "cuda_runtime_api.h"
