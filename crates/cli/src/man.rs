//! `isochrone man`: manual pages, made of the definitions by which the command line is read.

use crate::arguments::Man as Asked;
use crate::output::{create, make_directory, print_text, say, unwritable};
use crate::{Status, Usage, parse};
use anyhow::bail;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::Write;
use std::iter::once;

/// Of which part of the manual its pages are: programs that users run.
const SECTION: &str = "1";

/// Runs the verb.
pub(crate) fn run(asked: Asked) -> anyhow::Result<Status> {
    let program = program();
    let Some(folder) = &asked.out else {
        print_text(&page(found(&program, &asked.verb)?)?)?;
        return Ok(Status::Held);
    };
    make_directory("out", folder)?;
    let all = all(&program);
    for command in &all {
        let (path, text) = (folder.join(format!("{}.{SECTION}", name(command))), page(command)?);
        create(&path)?.write_all(text.as_bytes()).map_err(|cause| unwritable(&path, &cause))?;
    }
    say(format_args!("wrote {} pages into {}", all.len(), folder.display()));
    Ok(Status::Held)
}

/// The command line, with the full names of all verbs.
fn program() -> Command {
    // What `isochrone help` would tell is what these pages tell.
    let mut program = parse::command().disable_help_subcommand(true);
    program.build();
    program
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}

/// A command and all verbs below it.
fn all(command: &Command) -> Vec<&Command> {
    once(command).chain(visible(command).flat_map(all)).collect()
}

/// The verb of these words.
fn found<'p>(program: &'p Command, words: &[String]) -> anyhow::Result<&'p Command> {
    let mut command = program;
    for word in words {
        let Some(verb) = visible(command).find(|verb| verb.get_name() == word) else {
            let names: Vec<&str> = visible(command).map(Command::get_name).collect();
            let right = match names.is_empty() {
                true => "leave it out".to_owned(),
                false => format!("use one of {}", names.join(", ")),
            };
            let wrong = format!("man {}: {} has no verb {word:?}", words.join(" "), called(command));
            bail!(Usage(format!("{wrong}\n  {right}")));
        };
        command = verb;
    }
    Ok(command)
}

/// How it is called: `isochrone learn train`.
fn called(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

/// The name of its page: `isochrone-learn-train`.
fn name(command: &Command) -> String {
    called(command).replace(' ', "-")
}

/// Its page, as text of roff.
fn page(command: &Command) -> anyhow::Result<String> {
    let version = command.get_version().unwrap_or_default();
    let man = Man::new(command.clone())
        .title(name(command))
        .section(SECTION)
        // None: an empty word between two quotation marks, since without them the next would be taken for the date.
        .date("\"\"")
        .source(format!("isochrone {version}"))
        .manual("Isochrone Manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if visible(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    more(command).to_writer(&mut page)?;
    // Each part defines the apostrophe anew; once is enough.
    let apostrophe = Roff::new().render();
    let page = String::from_utf8(page)?.replace(&apostrophe, "");
    Ok(apostrophe + &page)
}

/// What a paragraph below the help of a verb is: its first words say it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    ExitStatus,
    Environment,
    Notes,
    Examples,
}

impl Kind {
    /// In the order in which pages have them.
    const ALL: [Kind; 4] = [Kind::ExitStatus, Kind::Environment, Kind::Notes, Kind::Examples];

    /// The kind of a paragraph, and the paragraph without the words that say so.
    pub(crate) fn of(paragraph: &str) -> (Kind, &str) {
        let heads = [
            ("Exit status: ", Kind::ExitStatus),
            ("Environment:\n", Kind::Environment),
            ("Examples:\n", Kind::Examples),
            ("Example:\n", Kind::Examples),
        ];
        let known = heads.iter().find_map(|(head, kind)| Some((*kind, paragraph.strip_prefix(*head)?)));
        known.unwrap_or((Kind::Notes, paragraph))
    }

    fn heading(self) -> &'static str {
        match self {
            Kind::ExitStatus => "EXIT STATUS",
            Kind::Environment => "ENVIRONMENT",
            Kind::Notes => "NOTES",
            Kind::Examples => "EXAMPLES",
        }
    }

    /// Appends a paragraph without its head.
    fn put(self, text: &str, page: &mut Roff) {
        match self {
            Kind::ExitStatus | Kind::Notes => text.lines().for_each(|line| {
                page.text([roman(line)]);
            }),
            Kind::Environment => text.lines().for_each(|line| {
                let (name, what) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
                page.control("TP", []).text([bold(name)]).text([roman(what.trim())]);
            }),
            // As they are typed: lines are neither filled nor joined.
            Kind::Examples => {
                page.control("nf", []);
                for line in text.lines() {
                    page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
                }
                page.control("fi", []);
            }
        }
    }
}

/// The sections of what stands below the help of a verb, and the pages of the commands above it.
fn more(command: &Command) -> Roff {
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let paragraphs: Vec<_> = help.split("\n\n").filter(|text| !text.is_empty()).map(Kind::of).collect();
    let mut page = Roff::new();
    for kind in Kind::ALL {
        let mut heading = Some(kind.heading());
        for (_, text) in paragraphs.iter().filter(|(of, _)| *of == kind) {
            match heading.take() {
                Some(heading) => page.control("SH", [heading]),
                None => page.control("PP", []),
            };
            kind.put(text, &mut page);
        }
    }
    let words: Vec<&str> = called(command).split(' ').collect();
    let above: Vec<_> = (1..words.len())
        .flat_map(|count| [bold(words[..count].join("-")), roman(format!("({SECTION})"))])
        .collect();
    if !above.is_empty() {
        page.control("SH", ["SEE ALSO"]).text(above);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn every_verb_has_a_page_with_its_flags_and_the_verbs_below_it() {
        let program = program();
        let all = all(&program);
        let names: Vec<String> = all.iter().map(|command| name(command)).collect();
        for wanted in
            ["isochrone", "isochrone-up", "isochrone-man", "isochrone-learn", "isochrone-learn-train"]
        {
            assert!(names.iter().any(|name| name == wanted), "{wanted}: {names:?}");
        }
        for command in all {
            let name = name(command);
            let page = page(command).unwrap().replace("\\-", "-");
            let entries: Vec<&str> =
                page.split("\n.TP\n").skip(1).filter_map(|entry| entry.lines().next()).collect();
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let shown = match (argument.get_long(), argument.get_value_names()) {
                    (Some(flag), _) => format!("\\fB--{flag}\\fR"),
                    (None, Some(names)) => format!("\\fI{}\\fR", names.join(" ")),
                    (None, None) => continue,
                };
                assert!(entries.iter().any(|entry| entry.contains(&shown)), "{name}: {shown}\n{page}");
            }
            for verb in visible(command) {
                let shown = format!("{name}-{}({SECTION})", verb.get_name());
                assert!(entries.contains(&shown.as_str()), "{name}: {shown}\n{page}");
            }
            assert!(page.contains(&format!("\n.SH NAME\n{name} - ")), "{page}");
            assert_eq!(page.matches(".ds Aq").count(), 2, "{page}");
            let version = env!("CARGO_PKG_VERSION");
            let title = format!("\n.TH {name} 1 \"\" \"isochrone {version}\" \"Isochrone Manual\"\n");
            assert!(page.contains(&title), "{page}");
        }
    }

    #[test]
    fn the_page_of_the_program_says_how_it_ends() {
        let page = page(&program()).unwrap();
        let (_, status) = page.split_once("\n.SH \"EXIT STATUS\"\n").expect("a section");
        let (status, _) = status.split_once("\n.SH ").expect("another section");
        for code in ["0 ", "1 ", "2 ", "3 "] {
            assert!(status.contains(code), "{code}: {status}");
        }
        assert!(page.contains("\n.SH ENVIRONMENT\n.TP\n\\fBNO_COLOR\\fR\n"), "{page}");
    }

    #[test]
    fn what_stands_below_the_help_is_in_sections_and_examples_are_as_typed() {
        let below = "Example:\n  isochrone put it\n  .here --there\n\nA note\nof two lines.\n\nAnother.\n\nExit status: 0 it's put.\n\n\
                     Environment:\n  PLACE     where\n  NOTHING";
        let mut program =
            Command::new("isochrone").subcommand(Command::new("put").about("Put").after_help(below));
        program.build();
        let put = found(&program, &["put".to_owned()]).unwrap();
        expect![[r#"
            .SH "EXIT STATUS"
            0 it\*(Aqs put.
            .SH ENVIRONMENT
            .TP
            \fBPLACE\fR
            where
            .TP
            \fBNOTHING\fR

            .SH NOTES
            A note
            of two lines.
            .PP
            Another.
            .SH EXAMPLES
            .nf
            isochrone put it
            \&.here \-\-there
            .fi
            .SH "SEE ALSO"
            \fBisochrone\fR(1)
        "#]]
        .assert_eq(&more(put).render().replace(&Roff::new().render(), ""));
    }

    #[test]
    fn a_page_is_named_by_the_words_of_its_verb() {
        let program = program();
        let found = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            found(&program, &words).map(name).map_err(|error| error.to_string())
        };
        assert_eq!(found(&[]), Ok("isochrone".to_owned()));
        assert_eq!(found(&["learn", "train"]), Ok("isochrone-learn-train".to_owned()));
        let error = found(&["learn", "fly"]).unwrap_err();
        assert!(
            error.starts_with(
                "man learn fly: isochrone learn has no verb \"fly\"\n  use one of plan, train, "
            ),
            "{error}"
        );
        let error = found(&["up", "on"]).unwrap_err();
        assert_eq!(error, "man up on: isochrone up has no verb \"on\"\n  leave it out");
    }
}
