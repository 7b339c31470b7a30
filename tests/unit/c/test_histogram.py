"""histogram.h: results are at most 12.5 % too large, whatever numbers were added."""

import ctypes
import math
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native import native

HOUR = 3600 * 10**9
BEYOND = 2**42  # the last bucket has all numbers from here on


def histogram(*numbers):
    h = (ctypes.c_uint64 * (native.RC_HISTOGRAM_BUCKETS + 2))()
    for number in numbers:
        native.rc_histogram_add(h, number)
    return h


def test_zero_bytes_are_an_empty_histogram():
    h = histogram()
    assert native.rc_histogram_count(h) == native.rc_histogram_max(h) == 0
    assert [native.rc_histogram_percentile(h, percent) for percent in (0.0, 50.0, 100.0)] == [0, 0, 0]


def test_one_number_is_every_percentile():
    h = histogram(1234567)
    assert native.rc_histogram_count(h) == 1
    assert native.rc_histogram_max(h) == 1234567
    assert {native.rc_histogram_percentile(h, percent) for percent in (0.0, 50.0, 99.9, 100.0)} == {1234567}


@pytest.mark.parametrize("number", range(16))
def test_small_numbers_are_exact(number):
    assert native.rc_histogram_percentile(histogram(number, 100), 50.0) == number


@given(st.integers(0, BEYOND - 1))
def test_at_most_an_eighth_too_much(number):
    found = native.rc_histogram_percentile(histogram(number, 2**63), 50.0)
    assert number <= found <= number * 1.125


@pytest.mark.parametrize("power", range(3, 42))
def test_each_power_of_two_is_divided_into_eight(power):
    """The smallest and the largest number of each bucket are in the same bucket, and adjacent numbers are not."""
    width = 2 ** (power - 3)
    for least in range(2**power, 2 ** (power + 1), width):
        greatest = least + width - 1
        for number in (least, greatest):
            assert native.rc_histogram_percentile(histogram(number, 2**63), 50.0) == greatest


@pytest.mark.parametrize("number", [BEYOND, BEYOND + 1, 2**63, 2**64 - 1])
def test_beyond_the_last_bucket_only_max_is_known(number):
    h = histogram(5, number)
    assert native.rc_histogram_max(h) == number
    assert native.rc_histogram_percentile(h, 50.0) == 5
    assert native.rc_histogram_percentile(h, 51.0) == number
    assert native.rc_histogram_count(h) == 2


def test_an_hour_is_in_range():
    assert native.rc_histogram_percentile(histogram(HOUR, BEYOND - 1), 50.0) <= HOUR * 1.125


@pytest.mark.parametrize("percent", [-1.0, 0.0, 1e-9])
def test_the_least_percentile_is_the_least_number(percent):
    assert native.rc_histogram_percentile(histogram(3, 5, 7), percent) == 3


def test_beyond_a_hundred_percent_is_max():
    assert native.rc_histogram_percentile(histogram(3, 5, 7), 200.0) == 7


@given(st.lists(st.integers(0, BEYOND - 1), min_size=1, max_size=200), st.floats(0.01, 100))
def test_percentiles_are_those_of_the_sorted_numbers(numbers, percent):
    rank = max(1, math.ceil(percent / 100 * len(numbers)))
    exact = sorted(numbers)[rank - 1]
    h = histogram(*numbers)
    assert exact <= native.rc_histogram_percentile(h, percent) <= min(exact * 1.125, max(numbers))
    assert native.rc_histogram_count(h) == len(numbers)
    assert native.rc_histogram_max(h) == max(numbers)


@given(st.lists(st.integers(0, BEYOND - 1), max_size=50), st.integers(3, 41))
def test_the_count_below_a_power_of_two(numbers, power):
    h = histogram(*numbers)
    assert native.rc_histogram_below(h, 2**power) == sum(number < 2**power for number in numbers)
    assert native.rc_histogram_sum(h) == sum(numbers)


@pytest.mark.parametrize("n", range(32))
def test_size_classes(n):
    """Numbers up to 2 ** n and greater than half of it."""
    assert native.rc_size_class(2**n) == n
    assert native.rc_size_class(2**n + 1) == n + 1


def test_threads_lose_no_count():
    h = histogram()
    numbers = [random.Random(seed).choices(range(10**6), k=2000) for seed in range(4)]
    threads = [
        threading.Thread(target=lambda mine=mine: [native.rc_histogram_add(h, n) for n in mine]) for mine in numbers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert native.rc_histogram_count(h) == 8000
    assert native.rc_histogram_max(h) == max(map(max, numbers))
    assert native.rc_histogram_sum(h) == sum(map(sum, numbers))
