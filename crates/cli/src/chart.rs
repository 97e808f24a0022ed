//! Charts as SVG: bars by group, and curves of cumulative distributions.

use std::fmt::Write;

/// Bars side by side in groups, and a floor across each group.
pub(crate) struct Bars {
    /// What is shown.
    pub(crate) title: String,
    /// Of the vertical axis.
    pub(crate) unit: &'static str,
    /// Names of the groups.
    pub(crate) groups: Vec<String>,
    /// A name, and a bar for each group.
    pub(crate) series: Vec<(String, Vec<f64>)>,
    /// For each group; empty where there is no such line.
    pub(crate) floor: Vec<f64>,
}

/// Curves over a common horizontal axis, from 0 to 1.
pub(crate) struct Curves {
    /// What is shown.
    pub(crate) title: String,
    /// Of the horizontal axis.
    pub(crate) axis: String,
    /// A name, and points (x, share up to x), x rising.
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

/// As far apart as twelve can be that each have a contrast of 3 to white, and of 3 to the dark that viewers put behind a
/// drawing whose background they leave out.
const COLOURS: [&str; 12] = [
    "#1f6feb", "#cc6d00", "#00a300", "#751aff", "#f50021", "#3193c4", "#717906", "#f425e6", "#8a5542",
    "#00a383", "#f50083", "#c07cbb",
];
/// Of lines that are none of a series, as the floor.
const NEUTRAL: &str = "#6c757d";
const LEFT: f64 = 64.0;
const TOP: f64 = 48.0;
const HEIGHT: f64 = 340.0;
const LEGEND: f64 = 260.0;

/// Draws bars.
pub(crate) fn bars(chart: &Bars) -> String {
    let each = 12.0;
    let group = each * chart.series.len() as f64 + 24.0;
    let width = group * chart.groups.len() as f64;
    let most = chart.series.iter().flat_map(|(_, values)| values).chain(&chart.floor);
    let scale = Scale::to(most.fold(1.0, |most, value| most.max(*value)));
    let mut page = Page::new(&chart.title, width, 64.0);
    page.levels(&scale, width, chart.unit);
    for (at, name) in chart.groups.iter().enumerate() {
        let left = LEFT + group * at as f64;
        for (index, (label, values)) in chart.series.iter().enumerate() {
            let (value, x) = (values[at], left + 12.0 + each * index as f64);
            let (y, colour) = (scale.y(value), COLOURS[index % COLOURS.len()]);
            let (label, name) = (escape(label), escape(name));
            page.put(format_args!(
                r#"<rect class="bar" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" fill="{colour}"><title>{name}: {label}, {value:.1} {}</title></rect>"#,
                each - 2.0,
                TOP + HEIGHT - y,
                chart.unit
            ));
        }
        if let Some(&floor) = chart.floor.get(at) {
            let y = scale.y(floor);
            page.put(format_args!(
                r#"<line x1="{:.1}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}" stroke="{NEUTRAL}" stroke-width="2" stroke-dasharray="5 3"><title>floor {:.1} {}</title></line>"#,
                left + 6.0,
                left + group - 6.0,
                floor,
                chart.unit
            ));
        }
        page.text(left + group / 2.0, TOP + HEIGHT + 18.0, "middle", name);
    }
    let mut names: Vec<(&str, &str)> = Vec::new();
    if !chart.floor.is_empty() {
        names.push((NEUTRAL, "floor (dashed)"));
    }
    names.extend(
        chart.series.iter().enumerate().map(|(at, (name, _))| (COLOURS[at % COLOURS.len()], name.as_str())),
    );
    page.legend(width, &names);
    page.end()
}

/// Draws curves.
pub(crate) fn curves(chart: &Curves) -> String {
    let width = 620.0;
    let most = chart.series.iter().flat_map(|(_, points)| points).map(|(x, _)| *x);
    let across = Scale::to(most.fold(1.0, f64::max));
    let up = Scale { most: 1.0, step: 0.1 };
    let mut page = Page::new(&chart.title, width, 64.0);
    page.levels(&up, width, "");
    let x = |value: f64| LEFT + value / across.most * width;
    for level in across.levels() {
        let (at, bottom) = (x(level), TOP + HEIGHT);
        page.put(format_args!(
            r##"<line x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{bottom}" stroke="#e9ecef"/>"##
        ));
        page.text(at, bottom + 18.0, "middle", &number(level));
    }
    page.text(LEFT + width / 2.0, TOP + HEIGHT + 40.0, "middle", &chart.axis);
    for (index, (name, points)) in chart.series.iter().enumerate() {
        let (name, colour) = (escape(name), COLOURS[index % COLOURS.len()]);
        let mut path = String::new();
        let mut last = 0.0;
        for (at, (value, share)) in points.iter().enumerate() {
            let (x, y) = (x(*value), up.y(*share));
            // Writing to a string cannot fail. A distribution steps: across first, then up.
            let _ = match at {
                0 => write!(path, "M{x:.1},{:.1} L{x:.1},{y:.1}", up.y(0.0)),
                _ => write!(path, " L{x:.1},{last:.1} L{x:.1},{y:.1}"),
            };
            last = y;
        }
        page.put(format_args!(
            r#"<path class="curve" d="{path}" fill="none" stroke="{colour}" stroke-width="2"><title>{name}</title></path>"#
        ));
    }
    let names: Vec<(&str, &str)> = chart
        .series
        .iter()
        .enumerate()
        .map(|(at, (name, _))| (COLOURS[at % COLOURS.len()], name.as_str()))
        .collect();
    page.legend(width, &names);
    page.end()
}

/// A vertical axis from 0.
struct Scale {
    most: f64,
    step: f64,
}

impl Scale {
    /// Up to a round number not below `most`, in four to ten steps of 1, 2 or 5 times a power of ten.
    fn to(most: f64) -> Scale {
        let power = 10f64.powf((most / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let step = step.into_iter().find(|step| most / step <= 8.0).unwrap_or(10.0 * power);
        Scale { most: (most / step).ceil() * step, step }
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT - value / self.most * HEIGHT
    }

    fn levels(&self) -> impl Iterator<Item = f64> + use<> {
        let step = self.step;
        (0..=(self.most / step).round() as u32).map(move |at| f64::from(at) * step)
    }
}

struct Page(String);

impl Page {
    fn new(title: &str, width: f64, below: f64) -> Page {
        let (width, height) = (LEFT + width + LEGEND, TOP + HEIGHT + below);
        let mut page = Page(String::new());
        page.put(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" font-size="12">"#
        ));
        page.put(format_args!(r#"<rect width="100%" height="100%" fill="white"/>"#));
        let title = escape(title);
        page.put(format_args!(r#"<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{title}</text>"#));
        page
    }

    /// Writing to a string cannot fail.
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(text);
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escape(text);
        self.put(format_args!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
    }

    fn levels(&mut self, scale: &Scale, width: f64, unit: &str) {
        for level in scale.levels() {
            let (y, right) = (scale.y(level), LEFT + width);
            self.put(format_args!(
                r##"<line x1="{LEFT}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}" stroke="#dee2e6"/>"##
            ));
            self.text(LEFT - 6.0, y + 4.0, "end", &number(level));
        }
        self.text(LEFT - 6.0, TOP - 12.0, "end", unit);
    }

    fn legend(&mut self, width: f64, names: &[(&str, &str)]) {
        for (at, (colour, name)) in names.iter().enumerate() {
            let (x, y) = (LEFT + width + 16.0, TOP + 8.0 + 18.0 * at as f64);
            self.put(format_args!(
                r#"<rect x="{x:.1}" y="{:.1}" width="12" height="4" fill="{colour}"/>"#,
                y - 6.0
            ));
            self.text(x + 18.0, y, "start", name);
        }
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn number(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    format!("{rounded}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (most, end, step) in
            [(134.0, 140.0, 20.0), (1.0, 1.0, 0.2), (456.0, 500.0, 100.0), (65_000.0, 70_000.0, 10_000.0)]
        {
            let scale = Scale::to(most);
            assert!(
                (scale.most - end).abs() < 1e-9 && (scale.step - step).abs() < 1e-9,
                "{most}: {}",
                scale.most
            );
        }
    }

    #[test]
    fn curves_step_and_names_are_escaped() {
        let svg = curves(&Curves {
            title: "a < b".to_owned(),
            axis: "ms".to_owned(),
            series: vec![("x & y".to_owned(), vec![(10.0, 0.5), (20.0, 1.0)])],
        });
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y"));
        assert_eq!(svg.matches("class=\"curve\"").count(), 1);
        // Up at 10 to one half, across, up at 20 to the whole.
        assert!(svg.contains("M374.0,388.0 L374.0,218.0 L684.0,218.0 L684.0,48.0"), "{svg}");
    }
}
