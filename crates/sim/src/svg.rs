//! Space-time diagrams.

use crate::flow::name_of;
use crate::trace::{FlowEvent, Line};
use isochrone_core::{Instant, Span};
use std::fmt::Write;

const LEFT: f64 = 110.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const REGION: f64 = 220.0;
const NOTES: f64 = 300.0;
const COLOURS: [&str; 8] =
    ["#1f6feb", "#b3541e", "#2b8a3e", "#8a2be2", "#c2255c", "#0b7285", "#846a00", "#495057"];

/// Draws a flow: SVG, a vertical line for each node in the column of its region, time downward, messages as
/// slanted arrows from where and when they left to where and when they arrive, at one scale. Crosses and
/// dashed lines are crashes and absences, red dashes messages that are lost, a ring at the tail of an
/// arrow a message that waited for its record. `nodes`: name and region of each.
pub(crate) fn draw(lines: &[Line], nodes: &[(&str, usize)], regions: &[String]) -> String {
    let begin = lines.iter().map(|line| line.at).min().unwrap_or_default();
    let end = lines.iter().map(end_of).max().unwrap_or_default();
    let length = end.since(begin).as_millis_f64().max(0.001);
    let scale = round_scale((lines.len() as f64 * 16.0).clamp(500.0, 24_000.0) / length);
    let (width, height) = (LEFT + REGION * regions.len() as f64 + NOTES, TOP + length * scale + BOTTOM);
    let mut page = Page { out: String::new(), begin, scale, columns: columns(nodes, regions.len()) };
    page.head(width, height);
    page.axis(end, width - NOTES + 10.0);
    page.nodes(lines, nodes, regions, end);
    for line in lines {
        page.line(line, width - NOTES + 20.0);
    }
    page.out.push_str("</svg>\n");
    page.out
}

fn end_of(line: &Line) -> Instant {
    match &line.event {
        FlowEvent::Message { arrival: Some(arrival), .. } => *arrival,
        _ => line.at,
    }
}

/// 1, 2 or 5 times a power of ten.
fn round_scale(scale: f64) -> f64 {
    let steps = (-6..6).flat_map(|exponent| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(exponent)));
    steps.filter(|step| *step <= scale).fold(1e-6, f64::max)
}

/// Where each node's line stands: inside its region's column, side by side.
fn columns(nodes: &[(&str, usize)], regions: usize) -> Vec<f64> {
    let mut seen = vec![0usize; regions];
    let mut total = vec![0usize; regions];
    nodes.iter().for_each(|(_, region)| total[*region] += 1);
    let place = |(_, region): &(&str, usize)| {
        seen[*region] += 1;
        LEFT + REGION * (*region as f64 + seen[*region] as f64 / (total[*region] + 1) as f64)
    };
    nodes.iter().map(place).collect()
}

struct Page {
    out: String,
    begin: Instant,
    /// Pixels a millisecond.
    scale: f64,
    columns: Vec<f64>,
}

impl Page {
    fn y(&self, at: Instant) -> f64 {
        TOP + at.since(self.begin).as_millis_f64() * self.scale
    }

    /// Writing to a string cannot fail.
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
        self.out.push('\n');
    }

    fn head(&mut self, width: f64, height: f64) {
        let scale = self.scale;
        self.put(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" font-size="11">"#
        ));
        self.put(format_args!(
            r##"<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="context-stroke"/></marker></defs>"##
        ));
        self.put(format_args!(r#"<rect width="100%" height="100%" fill="white"/>"#));
        self.put(format_args!(
            r##"<text x="8" y="{:.1}" fill="#495057">time in ms; {scale} px a ms</text>"##,
            height - 12.0
        ));
    }

    /// Ticks of time, about one every 60 pixels.
    fn axis(&mut self, end: Instant, right: f64) {
        let step = round_scale(120.0 / self.scale);
        let length = end.since(self.begin).as_millis_f64();
        let first = self.begin.since(Instant::ZERO).as_millis_f64();
        let mut tick = (first / step).ceil() * step;
        while tick <= first + length + 1e-9 {
            let y = TOP + (tick - first) * self.scale;
            self.put(format_args!(
                r##"<line x1="{LEFT}" x2="{right}" y1="{y:.1}" y2="{y:.1}" stroke="#e9ecef"/><text x="{:.0}" y="{:.1}" text-anchor="end" fill="#495057">{tick}</text>"##,
                LEFT - 8.0,
                y + 4.0
            ));
            tick = ((tick + step) / step).round() * step;
        }
    }

    fn nodes(&mut self, lines: &[Line], nodes: &[(&str, usize)], regions: &[String], end: Instant) {
        for (index, region) in regions.iter().enumerate() {
            let x = LEFT + REGION * (index as f64 + 0.5);
            let region = escape(region);
            self.put(format_args!(
                r#"<text x="{x:.0}" y="24" text-anchor="middle" font-weight="bold" font-size="14">{region}</text>"#
            ));
        }
        for (index, (name, _)) in nodes.iter().enumerate() {
            let x = self.columns[index];
            let name = escape(name);
            self.put(format_args!(
                r##"<text x="{x:.0}" y="46" text-anchor="middle" fill="#495057">{name}</text>"##
            ));
            // Whole lines while it is up, dashed ones while it is down.
            let (mut since, mut up) = (self.begin, true);
            let turns = lines.iter().filter(|line| line.node == Some(index));
            for line in turns {
                let now = match line.event {
                    FlowEvent::Down(_) => false,
                    FlowEvent::Up(_) => true,
                    _ => continue,
                };
                self.life(x, since, line.at, up);
                (since, up) = (line.at, now);
            }
            self.life(x, since, end, up);
        }
    }

    fn life(&mut self, x: f64, from: Instant, to: Instant, up: bool) {
        let (from, to) = (self.y(from), self.y(to));
        let style = if up { r##"stroke="#343a40""## } else { r##"stroke="#ced4da" stroke-dasharray="4 4""## };
        self.put(format_args!(
            r#"<line x1="{x:.1}" x2="{x:.1}" y1="{from:.1}" y2="{to:.1}" stroke-width="2" {style}/>"#
        ));
    }

    fn line(&mut self, line: &Line, notes: f64) {
        let y = self.y(line.at);
        let x = line.node.map_or(LEFT, |node| self.columns[node]);
        match &line.event {
            FlowEvent::Message { to, label, arrival, held, ahead, between } => {
                let end = self.columns[*to];
                if end == x {
                    // Inside a node nothing travels.
                    return;
                }
                self.message(x, y, end, (line, label, *arrival, *held, *ahead, between));
            }
            FlowEvent::Request(text) => self.dot(x, y, "#1f6feb", text, "?"),
            FlowEvent::Answer(text) => self.dot(x, y, "#2b8a3e", text, "="),
            FlowEvent::Mark(text) => self.dot(x, y, "#adb5bd", text, ""),
            FlowEvent::Decided(text) => self.dot(x, y, "#f08c00", text, ""),
            FlowEvent::Down(text) => {
                self.put(format_args!(
                    r##"<path d="M{:.1},{:.1} l12,12 m0,-12 l-12,12" stroke="#e03131" stroke-width="3"/>"##,
                    x - 6.0,
                    y - 6.0
                ));
                self.text(x + 10.0, y + 4.0, "#e03131", text);
            }
            FlowEvent::Unheard(text) => {
                let text = escape(text);
                self.put(format_args!(
                    r##"<path d="M{:.1},{:.1} l8,8 m0,-8 l-8,8" stroke="#e03131"><title>never heard {text}</title></path>"##,
                    x - 4.0,
                    y - 4.0
                ));
            }
            FlowEvent::Up(text) => self.text(x + 10.0, y + 4.0, "#2b8a3e", text),
            FlowEvent::Fault(text) => {
                self.put(format_args!(
                    r##"<line x1="{LEFT}" x2="{notes:.0}" y1="{y:.1}" y2="{y:.1}" stroke="#e03131" stroke-dasharray="2 6"/>"##
                ));
                self.text(notes + 4.0, y + 4.0, "#e03131", text);
            }
        }
    }

    fn message(
        &mut self,
        x: f64,
        y: f64,
        end: f64,
        (line, label, arrival, held, ahead, (from, to)): (
            &Line,
            &str,
            Option<Instant>,
            Span,
            bool,
            &(String, String),
        ),
    ) {
        let name = name_of(label);
        // Alike messages are alike in colour, whatever else is in the picture.
        let sum = name.bytes().fold(0usize, |sum, byte| sum * 31 + usize::from(byte));
        let colour = COLOURS[sum % COLOURS.len()];
        let (from, to, label) = (escape(from), escape(to), escape(label));
        let fate = match arrival {
            Some(arrival) => format!("arrives {arrival}"),
            None => "lost".to_owned(),
        };
        self.put(format_args!("<g><title>{} {from} to {to}: {label}; {fate}</title>", line.at));
        match arrival {
            Some(arrival) => {
                let bottom = self.y(arrival);
                let dash = if ahead { r#" stroke-dasharray="6 3""# } else { "" };
                self.put(format_args!(
                    r#"<line x1="{x:.1}" y1="{y:.1}" x2="{end:.1}" y2="{bottom:.1}" stroke="{colour}"{dash} marker-end="url(#head)"/>"#
                ));
                let (at, below) = (x + (end - x) * 0.3, y + (bottom - y) * 0.3 - 3.0);
                self.text(at, below, colour, name);
            }
            None => {
                let half = x + (end - x) * 0.4;
                self.put(format_args!(
                    r##"<line x1="{x:.1}" y1="{y:.1}" x2="{half:.1}" y2="{:.1}" stroke="#e03131" stroke-dasharray="3 3"/>"##,
                    y + 8.0
                ));
                self.text(half, y + 12.0, "#e03131", &format!("{name} lost"));
            }
        }
        if held > Span::ZERO {
            self.put(format_args!(
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="white" stroke="{colour}"><title>held {held} until durable</title></circle>"#
            ));
        }
        self.put(format_args!("</g>"));
    }

    fn dot(&mut self, x: f64, y: f64, colour: &str, text: &str, sign: &str) {
        let text = escape(text);
        self.put(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{colour}"><title>{text}</title></circle>"#
        ));
        if !sign.is_empty() {
            self.text(x + 7.0, y + 4.0, colour, &format!("{sign} {}", name_of(&text)));
        }
    }

    fn text(&mut self, x: f64, y: f64, colour: &str, text: &str) {
        let text = escape(text);
        self.put(format_args!(r#"<text x="{x:.1}" y="{y:.1}" fill="{colour}">{text}</text>"#));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
