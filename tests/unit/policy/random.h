/* Repeatable random numbers for property tests: a failure names its seed. */
#ifndef FAILSOFT_TESTS_UNIT_POLICY_RANDOM_H
#define FAILSOFT_TESTS_UNIT_POLICY_RANDOM_H

#include <stdint.h>

/* splitmix64 (Steele, Lea, Flood 2014): any seed is good. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 … n − 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t n)
{
    return random_next(state) % n;
}

#endif
