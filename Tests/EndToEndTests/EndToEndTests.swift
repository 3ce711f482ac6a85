// Tests of the whole.
