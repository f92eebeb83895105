//! Drawings of a replay: the queue, the use of the GPUs, and how long jobs took. One SVG file that contains no fonts.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::ranks::{Seconds, at_rank};
use crate::timeline::{Moment, Timeline};

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Plot<'a> {
    /// What stands on top: trace and policy.
    pub title: &'a str,
    /// The GPUs of all pools.
    pub gpus: u32,
    /// What happened.
    pub timeline: &'a Timeline,
    /// How long the jobs that ended took, from submission to end: in sorted lists.
    pub jct_s: &'a [Seconds],
}

/// A drawing that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the replay: {0}")]
pub struct PlotError(String);

const WIDTH: u32 = 960;
const HEIGHT: u32 = 1080;

/// Labels that are legible where the drawing fills half a screen.
const LABELS: (&str, u32) = ("sans-serif", 18);

/// About as many points as the drawing has columns.
const POINTS: usize = 800;

const DAY_S: f64 = 86_400.0;

/// Room for the numbers below a drawing and for what they are.
const BELOW: u32 = 54;

/// The colours of the three drawings (of Okabe and Ito's, which the colour-blind can tell apart).
const QUEUE: RGBColor = RGBColor(213, 94, 0);
const USE: RGBColor = RGBColor(0, 114, 178);
const DURATION: RGBColor = RGBColor(0, 158, 115);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a replay as SVG.
pub fn svg(plot: &Plot<'_>) -> Result<String, PlotError> {
    let mut text = String::new();
    draw(plot, &mut text).map_err(|error| PlotError(error.to_string()))?;
    Ok(text)
}

fn draw(plot: &Plot<'_>, text: &mut String) -> Result<(), Box<dyn Error>> {
    let sheet = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
    sheet.fill(&WHITE)?;
    let below = sheet.titled(plot.title, ("sans-serif", 20))?;
    let moments = plot.timeline.moments(POINTS);
    let unit = Unit::for_(&moments);
    let parts = below.split_evenly((3, 1));
    if let [queue, held, times] = &parts[..] {
        over_time(queue, &Curve::waiting(&moments, unit))?;
        over_time(held, &Curve::held(&moments, unit, plot.gpus))?;
        completion_times(times, plot.jct_s)?;
    }
    sheet.present()?;
    Ok(())
}

/// The unit of a time axis: the largest that fits into its length at least twice.
#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    s: f64,
}

impl Unit {
    const ALL: [Self; 4] = [
        Self { name: "day", s: DAY_S },
        Self { name: "hour", s: 3600.0 },
        Self { name: "minute", s: 60.0 },
        Self { name: "second", s: 1.0 },
    ];

    fn for_(moments: &[Moment]) -> Self {
        let ends = moments.first().zip(moments.last());
        let length_s = ends.map_or(0.0, |(first, last)| (last.at_s - first.at_s) as f64);
        let some = |unit: &Self| length_s >= 2.0 * unit.s;
        Self::ALL.into_iter().find(some).unwrap_or(Self::ALL[3])
    }
}

/// A count over time.
struct Curve {
    name: &'static str,
    colour: RGBColor,
    unit: Unit,
    /// Time since the first second of the trace, and the count.
    points: Vec<(f64, f64)>,
    /// What the count cannot exceed.
    bound: Option<f64>,
}

impl Curve {
    fn waiting(moments: &[Moment], unit: Unit) -> Self {
        let points = moments.iter().map(|moment| (moment.at_s as f64 / unit.s, moment.waiting)).collect();
        Self { name: "jobs waiting", colour: QUEUE, unit, points, bound: None }
    }

    fn held(moments: &[Moment], unit: Unit, gpus: u32) -> Self {
        let points = moments.iter().map(|moment| (moment.at_s as f64 / unit.s, moment.held_gpus)).collect();
        Self { name: "GPUs held", colour: USE, unit, points, bound: Some(gpus.into()) }
    }

    fn times(&self) -> Range<f64> {
        let first = self.points.first().map_or(0.0, |(at, _)| *at);
        let last = self.points.last().map_or(0.0, |(at, _)| *at);
        // A range without length cannot be drawn.
        first..last.max(first + 1.0 / self.unit.s)
    }

    fn top(&self) -> f64 {
        let highest = self.points.iter().map(|(_, count)| *count).fold(1.0, f64::max);
        self.bound.map_or(highest, |bound| bound.max(highest)) * 1.05
    }
}

fn over_time(area: &Area<'_>, curve: &Curve) -> Result<(), Box<dyn Error>> {
    let times = curve.times();
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(BELOW)
        .y_label_area_size(64)
        .build_cartesian_2d(times.clone(), 0.0..curve.top())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(LABELS)
        .x_desc(curve.unit.name)
        .y_desc(curve.name)
        .y_labels(whole_steps(curve.top()).len())
        .y_label_formatter(&|count| format!("{count:.0}"))
        .draw()?;
    let points = curve.points.iter().copied();
    chart.draw_series(AreaSeries::new(points, 0.0, curve.colour.mix(0.25)).border_style(curve.colour))?;
    if let Some(bound) = curve.bound {
        chart.draw_series(LineSeries::new([(times.start, bound), (times.end, bound)], BLACK.mix(0.6)))?;
    }
    Ok(())
}

/// Up to eight whole numbers above 0, spaced one, two or five times a power of ten: there is no half job.
fn whole_steps(top: f64) -> Vec<f64> {
    const MOST: f64 = 8.0;
    let (mut step, mut factors) = (1.0, [2.0, 2.5, 2.0].into_iter().cycle());
    while top / step > MOST {
        step *= factors.next().unwrap_or(2.0);
    }
    (0..).map(|at| f64::from(at) * step).take_while(|count| *count <= top).collect()
}

/// Draws the share of jobs that had ended after a time, on a logarithmic axis of time.
fn completion_times(area: &Area<'_>, jct_s: &[Seconds]) -> Result<(), Box<dyn Error>> {
    let shares = shares(jct_s);
    let longest = shares.last().map_or(10.0, |(longest, _)| longest.max(10.0));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(BELOW)
        .y_label_area_size(64)
        .build_cartesian_2d((1.0..longest).log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(LABELS)
        .x_desc("time from submission to end")
        .x_label_formatter(&|seconds| time(*seconds))
        .y_desc("jobs ended, %")
        .draw()?;
    // Between two ends the share stays the same.
    let before = std::iter::once(0.0).chain(shares.iter().map(|(_, share)| *share));
    let steps = shares.iter().zip(before).flat_map(|((at, share), before)| [(*at, before), (*at, *share)]);
    chart.draw_series(LineSeries::new(steps, DURATION.stroke_width(2)))?;
    Ok(())
}

/// Times of at least a second, each with the share of jobs that took no longer, as many as can be seen.
fn shares(jct_s: &[Seconds]) -> Vec<(f64, f64)> {
    let count: usize = jct_s.iter().map(Seconds::len).sum();
    let points = count.min(POINTS);
    let share = |point: usize| {
        let rank = (point * count).div_ceil(points);
        (at_rank(jct_s, rank).max(1) as f64, 100.0 * rank as f64 / count as f64)
    };
    (1..=points).map(share).collect()
}

/// Writes a power of ten in seconds in the units that people use.
fn time(seconds: f64) -> String {
    let (number, unit) = match seconds {
        _ if seconds >= DAY_S => (seconds / DAY_S, "d"),
        _ if seconds >= 3600.0 => (seconds / 3600.0, "h"),
        _ if seconds >= 60.0 => (seconds / 60.0, "min"),
        _ => (seconds, "s"),
    };
    if number < 10.0 && number.fract() > 0.05 {
        format!("{number:.1} {unit}")
    } else {
        format!("{number:.0} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_drawn_with_its_title_and_all_axes() {
        let (mut timeline, mut jct_s) = (Timeline::default(), Seconds::default());
        for row in 0..3000 {
            let (submit_s, length_s) = (row * 60, 10 + row * row);
            timeline.note(submit_s, 1, 0);
            timeline.note(submit_s + 30, -1, 8);
            timeline.note(submit_s + length_s.max(30), 0, -8);
            jct_s.push(length_s);
        }
        let plot = Plot { title: "jobs.csv, <srtf>", gpus: 64, timeline: &timeline, jct_s: &[jct_s] };
        let text = svg(&plot).unwrap();
        for part in ["<svg", "jobs.csv, &lt;srtf&gt;", "jobs waiting", "GPUs held", "jobs ended, %", "</svg>"]
        {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn counts_are_marked_at_whole_numbers() {
        assert_eq!(whole_steps(1.05), [0.0, 1.0]);
        assert_eq!(whole_steps(8.4), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(whole_steps(67.2), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
    }

    #[test]
    fn a_replay_in_which_nothing_happened_is_drawn_as_well() {
        let plot = Plot { title: "", gpus: 0, timeline: &Timeline::default(), jct_s: &[] };
        assert!(svg(&plot).unwrap().ends_with("</svg>\n"));
        let (mut timeline, mut jct_s) = (Timeline::default(), Seconds::default());
        timeline.note(5, 1, 1);
        jct_s.push(0);
        assert!(svg(&Plot { title: "one", gpus: 1, timeline: &timeline, jct_s: &[jct_s] }).is_ok());
    }
}
