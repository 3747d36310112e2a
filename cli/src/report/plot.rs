//! Plots as inline SVG that follows the page's theme and a screen's width.
//!
//! The library writes colours as attributes. Each part of a plot has one that nothing else has, and
//! the page's style sheet gives that attribute the theme's colour: a style wins over an attribute.
//! Without the sheet the colours are those of the light theme.
//!
//! Plots are small (360 units wide), and a page sets several side by side: on a phone one fills the
//! width and its text is as large as the page's.
//!
//! **Invariants**
//! - G1. What a plot shows is told apart by colour and by shape.
//! - G2. A logarithmic axis shows values above 0 only; others are left out.

pub(crate) use super::axis::Scale;
use super::axis::{Axis, mark};
use crate::failure::{Done, Failure};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The plot's width, and the height of one with lines.
const WIDTH: u32 = 360;
const HEIGHT: u32 = 240;
/// The height of a bar with its gap, and of the axis below.
const BAR: u32 = 30;
const BELOW: u32 = 46;
/// Labels that have room below a plot.
const LABELS: usize = 9;
const FONT: &str = "sans-serif";
const TEXT: u32 = 12;

/// Text and axes; lines behind the data.
pub(crate) const INK: RGBColor = RGBColor(0x33, 0x3a, 0x41);
pub(crate) const GRID: RGBColor = RGBColor(0xdd, 0xe1, 0xe5);

/// What a series is, which decides its colour and its shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The chosen grain.
    Chosen,
    /// Grain 1.
    One,
    /// A third and a fourth.
    Third,
    Fourth,
    /// The mechanism switched off, or numbers that were published.
    Beside,
}

impl Role {
    /// The colours of Okabe and Ito, which colour-blind people tell apart.
    pub(crate) const fn colour(self) -> RGBColor {
        match self {
            Role::Chosen => RGBColor(0x00, 0x72, 0xb2),
            Role::One => RGBColor(0xd5, 0x5e, 0x00),
            Role::Third => RGBColor(0x00, 0x9e, 0x73),
            Role::Fourth => RGBColor(0xaa, 0x55, 0x99),
            Role::Beside => RGBColor(0x6b, 0x72, 0x80),
        }
    }
    /// Its name in style sheets.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Role::Chosen => "chosen",
            Role::One => "one",
            Role::Third => "third",
            Role::Fourth => "fourth",
            Role::Beside => "beside",
        }
    }
}

/// A line.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The place on the horizontal axis, counted from 0, and the value.
    pub(crate) points: Vec<(usize, f64)>,
}

/// A bar.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) value: f64,
    /// The value as it is written beside the bar.
    pub(crate) text: String,
}

/// What a plot shows.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Shown {
    /// Values at places that have names, evenly spaced.
    Lines { places: Vec<String>, across: String, series: Vec<Series> },
    /// One value each.
    Bars(Vec<Bar>),
    /// How many times more or less each is: bars begin at 1.
    Ratios(Vec<Bar>),
}

/// A plot.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plot {
    /// What is shown, with the unit.
    pub(crate) title: String,
    pub(crate) scale: Scale,
    pub(crate) shown: Shown,
}

type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

impl Plot {
    /// The plot as an `svg` element.
    pub(crate) fn svg(&self) -> Done<String> {
        let mut text = String::new();
        let height = self.height();
        let drawn = match &self.shown {
            Shown::Lines { places, across, series } => {
                lines(&mut text, self.scale, (places, across), series)
            }
            Shown::Bars(bars) => {
                // Lengths on a logarithmic axis say something where they begin at 1.
                let from = bars.iter().all(|bar| bar.value >= 1.0).then_some(1.0);
                let from = from.filter(|_| self.scale == Scale::Log);
                self::bars(&mut text, (self.scale, from), bars, height)
            }
            Shown::Ratios(bars) => self::bars(&mut text, (self.scale, Some(1.0)), bars, height),
        };
        drawn.map_err(|why| Failure::new(format_args!("{} cannot be drawn: {why}", self.title)))?;
        // The library's element says how large it is and not what it is.
        let inside = text.find("<svg").and_then(|at| text[at..].split_once('>'));
        let (_, inside) = inside.ok_or_else(|| Failure::new("the plot has no svg element"))?;
        let label = maud::html! { (self.alt()) }.into_string().replace('"', "&quot;");
        Ok(format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">{inside}"
        ))
    }

    fn height(&self) -> u32 {
        match &self.shown {
            Shown::Lines { .. } => HEIGHT,
            Shown::Bars(bars) | Shown::Ratios(bars) => bars.len() as u32 * BAR + BELOW,
        }
    }

    /// The plot in words.
    pub(crate) fn alt(&self) -> String {
        let said: Vec<String> = match &self.shown {
            Shown::Bars(bars) | Shown::Ratios(bars) => {
                bars.iter().map(|bar| format!("{} {}", bar.name, bar.text)).collect()
            }
            Shown::Lines { places, series, .. } => {
                let end = |point: Option<&(usize, f64)>| {
                    let (at, value) = point.copied().unwrap_or_default();
                    let place = places.get(at).map_or("", String::as_str);
                    format!("{} at {place}", super::number::number(value))
                };
                let ends = |s: &Series| {
                    format!("{} from {} to {}", s.name, end(s.points.first()), end(s.points.last()))
                };
                series.iter().map(ends).collect()
            }
        };
        format!("{}: {}", self.title, said.join("; "))
    }

    /// The names and roles of its series, where it has more than one.
    pub(crate) fn legend(&self) -> Vec<(&str, Role)> {
        match &self.shown {
            Shown::Lines { series, .. } if series.len() > 1 => {
                series.iter().map(|s| (s.name.as_str(), s.role)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn lines(
    text: &mut String,
    scale: Scale,
    (places, across): (&[String], &str),
    series: &[Series],
) -> Drawn {
    let values = series.iter().flat_map(|s| s.points.iter().map(|(_, value)| *value));
    let axis = Axis::new(scale, values);
    let root = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
    let last = places.len().saturating_sub(1) as f64;
    let marks: Vec<f64> = (0..places.len()).map(|n| n as f64).collect();
    let mut chart = ChartBuilder::on(&root)
        .margin_top(10)
        .margin_right(14)
        .margin_bottom(2)
        .x_label_area_size(42)
        .y_label_area_size(44)
        .build_cartesian_2d(Axis { low: -0.3, high: last + 0.3, marks }, axis.clone())?;
    let every = places.len().div_ceil(LABELS).max(1);
    let place = |at: &f64| {
        let at = at.round() as usize;
        places.get(at).filter(|_| at.is_multiple_of(every)).cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(GRID)
        .label_style((FONT, TEXT).into_font().color(&INK))
        .x_labels(places.len())
        .y_labels(axis.marks.len())
        .x_label_formatter(&place)
        .y_label_formatter(&|at| mark(scale, *at))
        .x_desc(across)
        .draw()?;
    for one in series {
        let points: Vec<(f64, f64)> = one
            .points
            .iter()
            .filter_map(|(at, value)| Some((*at as f64, scale.place(*value)?)))
            .collect();
        let (colour, role) = (one.role.colour(), one.role);
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(
            points.into_iter().map(|point| EmptyElement::at(point) + shape(role, colour.filled())),
        )?;
    }
    root.present()?;
    Ok(())
}

/// The mark of a role: each has corners of its own. The legend draws the same ones.
fn shape<DB: DrawingBackend>(
    role: Role,
    style: ShapeStyle,
) -> plotters::element::DynElement<'static, DB, (i32, i32)> {
    let polygon = |points: &[(i32, i32)]| Polygon::new(points.to_vec(), style).into_dyn();
    match role {
        Role::Chosen => Circle::new((0, 0), 4, style).into_dyn(),
        Role::One => Rectangle::new([(-3, -3), (4, 4)], style).into_dyn(),
        Role::Third => polygon(&[(0, -5), (5, 4), (-5, 4)]),
        Role::Fourth => polygon(&[(0, -5), (5, 0), (0, 5), (-5, 0)]),
        Role::Beside => polygon(&[(-5, -4), (5, -4), (0, 5)]),
    }
}

/// Bars from `from`, or from the axis.
fn bars(
    text: &mut String,
    (scale, from): (Scale, Option<f64>),
    bars: &[Bar],
    height: u32,
) -> Drawn {
    let axis = Axis::new(scale, bars.iter().map(|bar| bar.value).chain(from));
    let from = from.and_then(|value| scale.place(value)).unwrap_or(axis.low);
    let root = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    let names = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0) as u32;
    let count = bars.len() as f64;
    let marks: Vec<f64> = (0..bars.len()).map(|n| count - n as f64 - 0.5).collect();
    let mut chart = ChartBuilder::on(&root)
        .margin_top(4)
        .margin_right(48)
        .x_label_area_size(26)
        .y_label_area_size((names * 8 + 16).min(150))
        .build_cartesian_2d(axis.clone(), Axis { low: 0.0, high: count, marks })?;
    let name = |at: &f64| {
        let bar = bars.get((count - at - 0.5).round() as usize);
        bar.map(|bar| bar.name.clone()).unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(GRID)
        .label_style((FONT, TEXT).into_font().color(&INK))
        .x_labels(axis.marks.len())
        .y_labels(bars.len())
        .x_label_formatter(&|at| mark(scale, *at))
        .y_label_formatter(&name)
        .draw()?;
    for (nth, bar) in bars.iter().enumerate() {
        let middle = count - nth as f64 - 0.5;
        let end = scale.place(bar.value).unwrap_or(from);
        let corners = [(from, middle - 0.3), (end, middle + 0.3)];
        chart.draw_series([Rectangle::new(corners, bar.role.colour().filled())])?;
        let style = (FONT, TEXT).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        let label = Text::new(bar.text.clone(), (5, 0), style);
        chart.draw_series([EmptyElement::at((end.max(from), middle)) + label])?;
    }
    root.present()?;
    Ok(())
}
