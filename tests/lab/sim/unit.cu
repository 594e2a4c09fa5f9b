// Copyright (c) 2026, blackwell.inference contributors
// SPDX-License-Identifier: GPL-3.0-or-later
//
// One compilation unit with GPU code in it. A library is linked from any number of copies of its object file, each of
// which brings its own container of GPU code.
//
// Plain C names: nvcc puts the number of its own process into every other name, and a wheel must not change with that.
extern "C" __global__ void add_one(float *values)
{
    values[threadIdx.x] += 1.0f;
}

extern "C" void launch(float *values)
{
    add_one<<<1, 32>>>(values);
}
