//! `isochrone backup verify`: what a file says, and whether it is what was written.

use super::arguments::Verify;
use super::format::{Counts, Fault, Footer, Header, Next, NextPart, Reader};
use super::{Report, date, unreadable};
use crate::arguments::Format;
use crate::output::{bar, clean_line, print_json, print_text};
use crate::{Status, Usage};
use anyhow::anyhow;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The file is read in pieces of so many bytes.
const PIECE: usize = 1 << 20;

/// Runs the verb.
pub(super) fn run(arguments: Verify) -> anyhow::Result<Status> {
    let Verify { file: path, format } = arguments;
    let file = File::open(&path).map_err(|cause| unreadable(&path, &cause))?;
    let (mut reader, header) =
        Reader::open(BufReader::with_capacity(PIECE, file)).map_err(|fault| faulty(&path, fault))?;
    let footer = to_the_end(&mut reader, &path)?;
    match format {
        Format::Json => print_json(&Report {
            file: path.display().to_string(),
            bytes: reader.offset(),
            header: &header,
            ended_ms: footer.ended_ms,
            counts: &footer.counts,
            gone: None,
        })?,
        Format::Text => {
            print_text(&text(&path.display().to_string(), reader.offset(), &header, &footer))?;
        }
    }
    Ok(Status::Held)
}

/// Reads all records, and the end.
///
/// # Errors
/// The file is not what was written.
pub(super) fn to_the_end<R: Read>(reader: &mut Reader<R>, path: &Path) -> anyhow::Result<Footer> {
    let length = path.metadata().map_or(0, |about| about.len());
    let progress = bar("checking", length);
    let footer = loop {
        let next = reader.entry().map_err(|fault| faulty(path, fault))?;
        match next {
            Next::Entry(entry) => {
                reader.value(&entry, |_| Ok(())).map_err(|error| blamed(path, error))?;
            }
            Next::InParts(_) => pass(reader, path)?,
            Next::End(footer) => break footer,
        }
        progress.set_position(reader.offset());
    };
    progress.finish_and_clear();
    Ok(footer)
}

/// Reads the parts of a record that was just begun.
pub(super) fn pass<R: Read>(reader: &mut Reader<R>, path: &Path) -> anyhow::Result<()> {
    while let NextPart::Part(_) = reader.part().map_err(|fault| faulty(path, fault))? {}
    Ok(())
}

/// A file that cannot be used.
pub(super) fn faulty(path: &Path, fault: Fault) -> anyhow::Error {
    let path = path.display();
    match fault {
        Fault::Other | Fault::Later => {
            let right = match fault {
                Fault::Later => "use the isochrone that wrote it, or a later one",
                _ => "name a file that `isochrone backup save` has written",
            };
            Usage(format!("{path}: {fault}\n  {right}")).into()
        }
        Fault::Unreadable { .. } | Fault::Short { .. } | Fault::Damaged { .. } => {
            anyhow!("{path}: {fault}\n  use another backup, or another copy of this one")
        }
    }
}

/// The same where something else may have been wrong as well.
pub(super) fn blamed(path: &Path, error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Fault>() {
        Ok(fault) => faulty(path, fault),
        Err(other) => other,
    }
}

/// What a file of so many bytes is, for people.
fn text(path: &str, bytes: u64, header: &Header, footer: &Footer) -> String {
    let Header { cluster, keyspace, protocol, node, version, begun_ms, one_moment } = header;
    let Counts { keys, with_deadline, key_bytes, value_bytes, types, in_parts, changed } = &footer.counts;
    let moment = if *one_moment {
        "all of it".to_owned()
    } else {
        format!(
            "none: each key as it was at some moment of the {:.1} s that it took",
            footer.ended_ms.saturating_sub(*begun_ms) as f64 / 1e3
        )
    };
    let kinds: Vec<_> = types.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let kinds = if kinds.is_empty() { "no keys".to_owned() } else { kinds.join(", ") };
    let mut text = vec![
        format!("{path}: whole, {bytes} bytes"),
        format!("  of          keyspace {keyspace} of cluster {cluster}, with {protocol}"),
        format!("  saved       {}, through node {node}, by isochrone {version}", date(*begun_ms)),
        format!("  one moment  {moment}"),
        format!("  keys        {keys} of {key_bytes} bytes; {with_deadline} with a deadline"),
        format!("  values      {value_bytes} bytes; {kinds}"),
    ];
    if *in_parts > 0 {
        text.push(format!("  in parts    {}", super::in_parts(*in_parts, *changed)));
    }
    text.iter().map(|line| clean_line(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn what_is_in_a_file_is_told_in_a_few_lines() {
        let header = Header {
            cluster: "prod".to_owned(),
            keyspace: "main".to_owned(),
            protocol: "multipaxos".to_owned(),
            node: "va1\u{1b}".to_owned(),
            version: "0.1.0".to_owned(),
            begun_ms: 1_700_000_000_250,
            one_moment: false,
        };
        let types = [("hash".to_owned(), 2), ("string".to_owned(), 40)].into();
        let counts = Counts {
            keys: 42,
            with_deadline: 3,
            key_bytes: 300,
            value_bytes: 9_000,
            types,
            in_parts: 2,
            changed: 1,
        };
        let footer = Footer { counts, ended_ms: 1_700_000_001_450 };
        expect![[r#"
            main.backup: whole, 9999 bytes
              of          keyspace main of cluster prod, with multipaxos
              saved       2023-11-14 22:13:20 UTC, through node va1?, by isochrone 0.1.0
              one moment  none: each key as it was at some moment of the 1.2 s that it took
              keys        42 of 300 bytes; 3 with a deadline
              values      9000 bytes; 2 hash, 40 string
              in parts    2 values that are longer than a node tells at once; 1 of them written while it was read, so that its parts are of different moments
        "#]]
        .assert_eq(&text("main.backup", 9_999, &header, &footer));
    }
}
