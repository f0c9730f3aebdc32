//! Proptest strategies for messages and attributes, shared by the tests of all crates above.
