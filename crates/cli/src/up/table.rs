//! The live table: a [`View`] as lines of text that fit a terminal. Pure; `screen` writes them.

use super::view::{RegionView, Role, State, View};
use std::fmt::Write;

/// What the terminal can show, and what the person looks at.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Frame<'a> {
    /// Columns of the terminal.
    pub(crate) width: usize,
    /// Rows of the terminal.
    pub(crate) height: usize,
    /// Whether colours may be used: not with `NO_COLOR`.
    pub(crate) colour: bool,
    /// The selected region's position.
    pub(crate) selected: usize,
    /// What happened last: the effect of a key, a failure.
    pub(crate) note: &'a str,
}

/// The keys, longest form first; the first that fits is shown.
const HELP: [&str; 3] = [
    "↑ ↓ or 1-9 select   k kill   r restart   p partition / heal   l lead from here   q quit",
    "↑↓ select  k kill  r restart  p cut/heal  l lead  q quit",
    "↑↓ k r p l q",
];

#[derive(Copy, Clone, PartialEq, Eq)]
enum Paint {
    Plain,
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

impl Paint {
    fn start(self) -> &'static str {
        match self {
            Paint::Plain => "",
            Paint::Bold => "\x1b[1m",
            Paint::Dim => "\x1b[2m",
            Paint::Green => "\x1b[32m",
            Paint::Yellow => "\x1b[33m",
            Paint::Red => "\x1b[1;31m",
        }
    }
}

/// A column: its head, whether numbers stand right, what it shows, and how dear it is: where the terminal is
/// narrow, the columns with the lowest worth go first.
struct Column {
    head: &'static str,
    right: bool,
    worth: u8,
    cell: fn(&RegionView) -> String,
}

const COLUMNS: [Column; 9] = [
    Column { head: "region", right: false, worth: 9, cell: |row| row.region.clone() },
    Column { head: "redis", right: true, worth: 5, cell: |row| row.port.to_string() },
    Column { head: "state", right: false, worth: 8, cell: |row| row.state.name().to_owned() },
    Column { head: "role", right: false, worth: 6, cell: role },
    Column { head: "applied", right: true, worth: 1, cell: applied },
    Column { head: "ops/s", right: true, worth: 4, cell: |row| rate(row.figures.rate) },
    Column { head: "p50 ms", right: true, worth: 7, cell: |row| millis(row.figures.p50_ms) },
    Column { head: "p99 ms", right: true, worth: 2, cell: |row| millis(row.figures.p99_ms) },
    Column { head: "write p50  floor  ratio", right: true, worth: 3, cell: floor },
];

fn role(row: &RegionView) -> String {
    if row.stands() { row.role.name().to_owned() } else { "-".to_owned() }
}

fn applied(row: &RegionView) -> String {
    if row.role == Role::Client || !row.stands() { "-".to_owned() } else { row.applied.to_string() }
}

fn floor(row: &RegionView) -> String {
    let ratio = row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    format!("{:>9}  {:>5.1}  {ratio:>5}", millis(row.figures.write_p50_ms), row.floor_ms)
}

/// Milliseconds, with as many decimals as can be read.
pub(crate) fn millis(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// A rate; below ten a decimal tells one from none.
pub(crate) fn rate(value: f64) -> String {
    if value == 0.0 || value >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// The lines of the screen, at most `height` of them, none wider than `width`.
pub(crate) fn lines(view: &View, frame: &Frame<'_>) -> Vec<String> {
    let mut lines = vec![title(view, frame), subtitle(view, frame), String::new()];
    let columns = columns(view, frame.width);
    lines.push(head(view, &columns, frame));
    let fixed = lines.len() + 3;
    let room = frame.height.saturating_sub(fixed).max(1);
    // Where not all regions fit, the window follows the selection.
    let first = frame.selected.saturating_sub(room - 1).min(view.regions.len().saturating_sub(room));
    for (index, row) in view.regions.iter().enumerate().skip(first).take(room) {
        lines.push(region(view, index, row, &columns, frame));
    }
    lines.push(String::new());
    lines.push(paint(frame, Paint::Yellow, &clip(frame.note, frame.width)));
    let help = HELP.iter().find(|help| width(help) <= frame.width).copied().unwrap_or(HELP[2]);
    lines.push(paint(frame, Paint::Dim, &clip(help, frame.width)));
    // Too low a terminal keeps what is read most: the rows. The help goes first, then the head.
    while lines.len() > frame.height.max(1) {
        if lines.len() > view.regions.len() + 1 {
            lines.pop()
        } else {
            Some(lines.remove(0))
        };
    }
    lines
}

fn title(view: &View, frame: &Frame<'_>) -> String {
    let seconds = view.elapsed.as_secs();
    let clock = format!("{:02}:{:02}", seconds / 60, seconds % 60);
    let left = format!("isochrone · {} · up {clock}", view.cluster);
    paint(frame, Paint::Bold, &clip(&left, frame.width))
}

fn subtitle(view: &View, frame: &Frame<'_>) -> String {
    let about = format!("keyspace {} · {} · {} · ", view.keyspace, view.protocol, view.guarantee);
    let (durable, colour) = if view.fsync {
        ("durable: acknowledged after fsync on a majority", Paint::Dim)
    } else {
        ("UNSAFE: fsync is off, a power failure loses acknowledged writes", Paint::Red)
    };
    let room = frame.width.saturating_sub(width(&about));
    // The warning may not be what a narrow terminal cuts off.
    if !view.fsync && width(durable) > room {
        return paint(frame, Paint::Red, &clip(durable, frame.width));
    }
    format!("{}{}", clip(&about, frame.width), paint(frame, colour, &clip(durable, room)))
}

fn columns(view: &View, room: usize) -> Vec<(&'static Column, usize)> {
    let mut columns: Vec<_> = COLUMNS
        .iter()
        .map(|column| {
            let cells = view.regions.iter().map(|row| width(&(column.cell)(row)));
            let least = match column.head {
                // Wide enough for what comes, so that the table does not twitch.
                "state" | "role" => 8,
                "applied" | "ops/s" | "p50 ms" | "p99 ms" => 7,
                _ => 0,
            };
            (column, cells.max().unwrap_or(0).max(width(column.head)).max(least))
        })
        .collect();
    // The marker and the number before the name, then two blanks between columns.
    while columns.len() > 1 && 4 + columns.iter().map(|(_, width)| width + 2).sum::<usize>() - 2 > room {
        let least = columns.iter().enumerate().min_by_key(|(_, (column, _))| column.worth);
        let Some((least, _)) = least else { break };
        columns.remove(least);
    }
    columns
}

fn head(view: &View, columns: &[(&Column, usize)], frame: &Frame<'_>) -> String {
    let mut line = " ".repeat(prefix(view, 0, false).len());
    for (column, width) in columns {
        let _ = write!(line, "{}  ", fit(column.head, *width, column.right));
    }
    paint(frame, Paint::Dim, &clip(line.trim_end(), frame.width))
}

fn prefix(view: &View, index: usize, selected: bool) -> String {
    let digits = view.regions.len().to_string().len();
    format!("{}{:>digits$} ", if selected { ">" } else { " " }, index + 1)
}

fn region(
    view: &View,
    index: usize,
    row: &RegionView,
    columns: &[(&Column, usize)],
    frame: &Frame<'_>,
) -> String {
    let selected = index == frame.selected;
    let mut line = String::new();
    let mut room = frame.width;
    let mut put = |text: &str, colour: Paint| {
        let text = clip(text, room);
        room -= width(&text);
        line += &paint(frame, colour, &text);
    };
    put(&prefix(view, index, selected), if selected { Paint::Bold } else { Paint::Plain });
    for (position, (column, width)) in columns.iter().enumerate() {
        let text = fit(&(column.cell)(row), *width, column.right);
        let last = position + 1 == columns.len();
        put(if last { text.trim_end() } else { &text }, colour(column, row, selected));
        if !last {
            put("  ", Paint::Plain);
        }
    }
    line
}

fn colour(column: &Column, row: &RegionView, selected: bool) -> Paint {
    match column.head {
        "state" => match row.state {
            State::Up => Paint::Green,
            State::Starting | State::Stalled | State::Cut => Paint::Yellow,
            State::Down | State::Failed => Paint::Red,
        },
        "role" if row.role == Role::Leader && row.stands() => Paint::Bold,
        "region" if selected => Paint::Bold,
        _ => Paint::Plain,
    }
}

fn paint(frame: &Frame<'_>, paint: Paint, text: &str) -> String {
    if !frame.colour || paint == Paint::Plain || text.trim().is_empty() {
        return text.to_owned();
    }
    format!("{}{text}\x1b[0m", paint.start())
}

fn fit(text: &str, room: usize, right: bool) -> String {
    let blank = " ".repeat(room.saturating_sub(width(text)));
    if right { format!("{blank}{text}") } else { format!("{text}{blank}") }
}

/// The text, cut where it is too wide; a mark shows that it was.
fn clip(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(room.saturating_sub(1)).collect();
    if room > 0 {
        cut.push('…');
    }
    cut
}

/// Columns that a text takes; names of regions are taken to be of narrow characters.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use isochrone_node::figures::Figures;
    use std::time::Duration;

    fn row(region: &str, port: u16, floor_ms: f64, p50: Option<f64>) -> RegionView {
        RegionView {
            region: region.to_owned(),
            port,
            state: State::Up,
            role: Role::Follower,
            applied: 1234,
            figures: Figures {
                operations: 360,
                rate: p50.map_or(0.0, |_| 12.0),
                p50_ms: p50,
                p99_ms: p50.map(|p50| p50 * 1.1),
                write_p50_ms: p50.map(|p50| p50 * 1.01),
            },
            floor_ms,
        }
    }

    pub(crate) fn five() -> View {
        let mut regions = vec![
            row("US West", 7001, 102.0, Some(161.4)),
            row("US East", 7002, 88.0, Some(88.3)),
            row("Euro", 7003, 161.0, None),
            row("Asia", 7004, 115.0, Some(258.9)),
            row("Australia", 7005, 161.0, None),
        ];
        regions[1].role = Role::Leader;
        regions[2].state = State::Cut;
        regions[4].state = State::Down;
        View {
            cluster: "five-regions".to_owned(),
            keyspace: "main".to_owned(),
            protocol: "multipaxos".to_owned(),
            guarantee: "linearizable".to_owned(),
            fsync: true,
            elapsed: Duration::from_secs(75),
            regions,
        }
    }

    fn shows(view: &View, width: usize, height: usize, expected: Expect) {
        let frame =
            Frame { width, height, colour: false, selected: 1, note: "Australia: killed, as by SIGKILL" };
        let lines = lines(view, &frame);
        assert!(lines.len() <= height, "{} lines", lines.len());
        for line in &lines {
            assert!(super::width(line) <= width, "{line}");
        }
        expected.assert_eq(&(lines.join("\n") + "\n"));
    }

    #[test]
    fn the_table_shows_every_region() {
        shows(
            &five(),
            100,
            24,
            expect![[r#"
                isochrone · five-regions · up 01:15
                keyspace main · multipaxos · linearizable · durable: acknowledged after fsync on a majority

                   region     redis  state     role        ops/s   p50 ms   p99 ms  write p50  floor  ratio
                 1 US West     7001  up        follower       12    161.4    177.5      163.0  102.0   1.60
                >2 US East     7002  up        leader         12     88.3     97.1       89.2   88.0   1.01
                 3 Euro        7003  cut       follower        0        -        -          -  161.0      -
                 4 Asia        7004  up        follower       12    258.9    284.8      261.5  115.0   2.27
                 5 Australia   7005  down      -               0        -        -          -  161.0      -

                Australia: killed, as by SIGKILL
                ↑ ↓ or 1-9 select   k kill   r restart   p partition / heal   l lead from here   q quit
            "#]],
        );
    }

    #[test]
    fn a_narrow_terminal_loses_the_least_of_it() {
        shows(
            &five(),
            60,
            24,
            expect![[r#"
                isochrone · five-regions · up 01:15
                keyspace main · multipaxos · linearizable · durable: acknow…

                   region     redis  state     role        ops/s   p50 ms
                 1 US West     7001  up        follower       12    161.4
                >2 US East     7002  up        leader         12     88.3
                 3 Euro        7003  cut       follower        0        -
                 4 Asia        7004  up        follower       12    258.9
                 5 Australia   7005  down      -               0        -

                Australia: killed, as by SIGKILL
                ↑↓ select  k kill  r restart  p cut/heal  l lead  q quit
            "#]],
        );
        shows(
            &five(),
            24,
            24,
            expect![[r#"
            isochrone · five-region…
            keyspace main · multipa…

               region     state
             1 US West    up
            >2 US East    up
             3 Euro       cut
             4 Asia       up
             5 Australia  down

            Australia: killed, as b…
            ↑↓ k r p l q
        "#]],
        );
    }

    #[test]
    fn a_low_terminal_keeps_the_selected_row() {
        shows(
            &five(),
            100,
            9,
            expect![[r#"
                isochrone · five-regions · up 01:15
                keyspace main · multipaxos · linearizable · durable: acknowledged after fsync on a majority

                   region     redis  state     role        ops/s   p50 ms   p99 ms  write p50  floor  ratio
                 1 US West     7001  up        follower       12    161.4    177.5      163.0  102.0   1.60
                >2 US East     7002  up        leader         12     88.3     97.1       89.2   88.0   1.01

                Australia: killed, as by SIGKILL
                ↑ ↓ or 1-9 select   k kill   r restart   p partition / heal   l lead from here   q quit
            "#]],
        );
        shows(
            &five(),
            100,
            2,
            expect![[r#"
                >2 US East     7002  up        leader         12     88.3     97.1       89.2   88.0   1.01

            "#]],
        );
    }

    #[test]
    fn unsafe_is_said_however_narrow_it_is() {
        let view = View { fsync: false, ..five() };
        for width in [24, 60, 80, 120] {
            let frame = Frame { width, height: 24, colour: false, selected: 0, note: "" };
            assert!(lines(&view, &frame).join("\n").contains("UNSAFE"), "{width}");
        }
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        let frame = |colour| Frame { width: 100, height: 24, colour, selected: 1, note: "" };
        let coloured = lines(&five(), &frame(true)).join("\n");
        let plain = lines(&five(), &frame(false)).join("\n");
        assert!(!plain.contains('\x1b'));
        let stripped = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m"]
            .iter()
            .fold(coloured.clone(), |text, code| text.replace(code, ""));
        assert_ne!(coloured, plain);
        assert_eq!(stripped, plain);
    }
}
