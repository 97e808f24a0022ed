//! The contract tests that both hosts pass.
