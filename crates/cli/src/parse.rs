//! Reads the command line. Of a value that cannot be meant it says what would be right, where the parsers of numbers and
//! addresses say only what is wrong.

use crate::arguments::Arguments;
use crate::man::Kind;
use crate::output::{say, unprinted};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;

/// The definitions. The value of a flag may begin with a minus: then it is the number that is wrong, not a flag that is
/// unknown.
pub(crate) fn command() -> Command {
    signed(Arguments::command())
}

fn signed(command: Command) -> Command {
    let flag = |arg: Arg| match arg.get_action().takes_values() && !arg.is_positional() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(flag).mut_subcommands(signed)
}

/// What stands below the help of a verb, its prose in one line for each paragraph: where that is broken, the terminal says.
fn filled(command: Command) -> Command {
    let below = command.get_after_help().map(|text| fill(&text.to_string()));
    let command = match below {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(filled)
}

fn fill(text: &str) -> String {
    let paragraph = |text: &str| match Kind::of(text).0 {
        Kind::ExitStatus | Kind::Notes => text.replace('\n', " "),
        Kind::Environment | Kind::Examples => text.to_owned(),
    };
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}

/// Reads it.
///
/// # Errors
/// The status to exit with: help was asked for and is printed, or what is wrong is said.
pub(crate) fn arguments() -> Result<Arguments, ExitCode> {
    read(std::env::args_os()).map_err(|error| tell(&error))
}

fn read(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let mut command = filled(command());
    let mut matches = command.try_get_matches_from_mut(words).map_err(advised)?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Prints what the parser says: help to standard output, what is wrong to standard error. The status to exit with.
fn tell(error: &clap::Error) -> ExitCode {
    match error.print() {
        Err(cause) if !error.use_stderr() && cause.kind() != io::ErrorKind::BrokenPipe => {
            say(format_args!("isochrone: {}", unprinted(&cause)));
            ExitCode::from(2)
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}

fn advised(mut error: clap::Error) -> clap::Error {
    if let Some(right) = right(&error) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(right)]));
    }
    error
}

/// What would be right in the place of a value whose parser does not say it.
fn right(error: &clap::Error) -> Option<&'static str> {
    if error.kind() == ErrorKind::UnknownArgument {
        return unneeded(error);
    }
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && flag.contains("HOST:PORT")
    {
        return Some("a host and its port would be right, e.g. 127.0.0.1:9000");
    }
    let cause = error.source()?;
    if let Some(wrong) = cause.downcast_ref::<ParseIntError>() {
        return Some(match wrong.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "a smaller whole number would be right",
            IntErrorKind::Zero => "a whole number from 1 on would be right",
            _ => "a whole number would be right, e.g. 8",
        });
    }
    if cause.is::<ParseFloatError>() {
        return Some("a number would be right, e.g. 0.5");
    }
    cause.is::<AddrParseError>().then_some("an IP address would be right, e.g. 127.0.0.1 or ::1")
}

/// Why a verb does not have a flag that others of its kind have.
fn unneeded(error: &clap::Error) -> Option<&'static str> {
    let flag = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(flag) => flag.as_str(),
        _ => return None,
    };
    let usage = match error.get(ContextKind::Usage)? {
        ContextValue::StyledStr(usage) => usage.to_string(),
        _ => return None,
    };
    let plans = usage.contains(" plan ") && ["--protocol", "--leader"].contains(&flag);
    plans.then_some("plan shows all protocols, each with every leader; its rows are named by them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Verb;
    use expect_test::{Expect, expect};

    fn of(words: &[&str]) -> Result<Arguments, String> {
        let words = std::iter::once("isochrone").chain(words.iter().copied()).map(OsString::from);
        read(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definitions_are_consistent_also_when_they_have_been_changed() {
        command().debug_assert();
    }

    #[test]
    fn help_is_as_wide_as_the_terminal_and_100_columns_at_most() {
        let help = of(&["--help"]).unwrap_err();
        assert!(help.contains("Exit status: 0 ") && help.contains("NO_COLOR"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        let text = "A note\nof two lines.\n\nExamples:\n  one\n  two\n\nExit status: 0\ndone.";
        assert_eq!(fill(text), "A note of two lines.\n\nExamples:\n  one\n  two\n\nExit status: 0 done.");
    }

    #[test]
    fn a_value_that_is_none_is_told_with_what_would_be_right() {
        let says = |words: &[&str], expected: Expect| expected.assert_eq(&of(words).unwrap_err());
        says(
            &["sim", "file", "--seed", "abc"],
            expect![[r#"
                error: invalid value 'abc' for '--seed <S>': invalid digit found in string

                  tip: a whole number would be right, e.g. 8

                For more information, try '--help'.
            "#]],
        );
        says(
            &["status", "--http", "here"],
            expect![[r#"
                error: invalid value 'here' for '--http <HOST:PORT>': has no port

                  tip: a host and its port would be right, e.g. 127.0.0.1:9000

                For more information, try '--help'.
            "#]],
        );
        let cases: &[(&[&str], &str)] = &[
            (&["sim", "file", "--rate", "abc"], "tip: a number would be right, e.g. 0.5\n"),
            (&["redis", "--dir", "d", "--bind", "here"], "tip: an IP address would be right, e.g. 127.0.0.1"),
            (&["redis", "--dir", "d", "--port", "abc"], "tip: a whole number would be right"),
            (
                &["sim", "file", "--seed", "99999999999999999999"],
                "tip: a smaller whole number would be right",
            ),
            (
                &["learn", "train", "file", "--model", "m", "--rank", "0"],
                "tip: a whole number from 1 on would be right",
            ),
            // A number with a sign is one too, and what is wrong with it is said of it.
            (&["sim", "file", "--seed", "-1"], "invalid value '-1' for '--seed <S>'"),
            (&["redis", "--dir", "d", "--databases", "-1"], "-1 is not in 1..=64"),
            (&["plan", "file", "--protocol", "curp"], "tip: plan shows all protocols, each with every"),
            (&["plan", "--leader=Euro"], "tip: plan shows all protocols, each with every"),
            (&["up", "--leader", "Euro"], "tip: to pass '--leader' as a value, use '-- --leader'"),
        ];
        for (words, expected) in cases {
            let error = of(words).unwrap_err();
            assert_eq!(error.matches(expected).count(), 1, "{words:?}\n{error}");
        }
        let Verb::Sim(sim) = of(&["sim", "file", "--jitter", "-1"]).unwrap().verb else {
            panic!("it is sim")
        };
        assert_eq!(sim.jitter, Some(-1.0));
    }

    #[test]
    fn what_says_itself_what_would_be_right_is_left_as_it_is() {
        for words in
            [&["up", "--for", "5"][..], &["up", "--format", "yaml"], &["status", "a", "--http", "b:1"]]
        {
            let error = of(words).unwrap_err();
            assert!(!error.contains("tip:"), "{error}");
        }
    }
}
