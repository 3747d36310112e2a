#!/bin/sh
# Stands in for QEMU in the tests of `foliant boot`: does what FAKE_QEMU says, with QEMU's arguments in "$@".
eval "$FAKE_QEMU"
