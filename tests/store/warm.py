"""Imports and compiles everything, so that workers that are forked afterwards start at once."""

from storekit import small_learner

small_learner()
