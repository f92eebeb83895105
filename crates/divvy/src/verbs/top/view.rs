//! What `top` shows, and how: a pure function of the answers.

use divvy_api::{Gpu, Job, Pool, Queue};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use crate::output::{Tone, bytes, cores, gpus, memory_pair, plain, span};
use crate::verbs::{gpus as devices, ps};

/// All that is shown.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The pool.
    pub(crate) pool: Pool,
    /// Its devices.
    pub(crate) gpus: Vec<Gpu>,
    /// Its queues.
    pub(crate) queues: Vec<Queue>,
    /// What is wrong with the daemon, if anything is.
    pub(crate) trouble: Option<String>,
    /// When it was asked.
    pub(crate) now_ms: i64,
    jobs: Vec<Job>,
    top: usize,
}

impl View {
    /// Puts running jobs first, then waiting jobs, each in the order of their turn.
    pub(crate) fn put_jobs(&mut self, mut jobs: Vec<Job>) {
        jobs.sort_by_key(|job| (job.state.is_waiting(), job.position.unwrap_or(u64::MAX)));
        self.jobs = jobs;
        self.scroll(0);
    }

    /// Scrolls through the jobs.
    pub(crate) fn scroll(&mut self, by: isize) {
        self.top = self.top.saturating_add_signed(by).min(self.jobs.len().saturating_sub(1));
    }
}

/// Draws the whole screen.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let device_lines =
        u16::try_from(view.gpus.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height / 2);
    let queue_lines =
        u16::try_from(view.queues.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height / 6 + 2);
    let [head, device_area, queue_area, job_area, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(device_lines),
        Constraint::Length(queue_lines),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, view);
    draw_devices(frame, device_area, &view.gpus);
    draw_queues(frame, queue_area, &view.queues);
    draw_jobs(frame, job_area, view);
    draw_foot(frame, foot, view);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let pool = &view.pool;
    let mut line = vec![Span::styled("divvy ", Style::new().add_modifier(Modifier::BOLD))];
    line.push(Span::raw(format!(
        "{}  GPUs {}/{} held  cores {}/{}  memory {}/{}  {} running  {} waiting",
        plain(&pool.node),
        pool.gpus.saturating_sub(pool.gpus_free),
        pool.gpus,
        cores(pool.cpu_held_milli),
        cores(pool.cpu_milli),
        bytes(pool.memory_held_bytes),
        bytes(pool.memory_bytes),
        pool.running,
        pool.waiting,
    )));
    if pool.source == "pretend" {
        line.push(Span::styled("  PRETENDED GPUs", Style::new().fg(Color::Yellow)));
    }
    frame.render_widget(Paragraph::new(Line::from(line)), area);
}

/// A bar of eighths, `▎` to `█`, as wide as `width` says.
fn bar(percent: u32, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = percent.min(100) as usize * width * 8 / 100;
    let full = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    let missing = width - full.chars().count();
    full + &"·".repeat(missing)
}

fn draw_devices(frame: &mut Frame<'_>, area: Rect, all: &[Gpu]) {
    // The header takes a line; the free line below is given up if the devices need it.
    let rows_that_fit = usize::from(area.height.saturating_sub(1)).max(1);
    let blocks = all.len().div_ceil(rows_that_fit).max(1);
    let widths = vec![Constraint::Ratio(1, u32::try_from(blocks).unwrap_or(1)); blocks];
    let several_nodes = all.iter().any(|gpu| gpu.node != all[0].node);
    let areas = Layout::horizontal(widths).spacing(2).split(area);
    for (gpus, area) in all.chunks(rows_that_fit).zip(areas.iter()) {
        // With several columns of devices, there is room for the essentials only.
        let table = if blocks == 1 { full_devices(gpus, several_nodes) } else { short_devices(gpus) };
        frame.render_widget(table, *area);
    }
    if all.is_empty() {
        frame.render_widget(Paragraph::new("no GPUs"), area);
    }
}

fn full_devices(gpus: &[Gpu], several_nodes: bool) -> Table<'static> {
    let rows = gpus.iter().map(|gpu| {
        let index =
            if several_nodes { format!("{}:{}", plain(&gpu.node), gpu.index) } else { gpu.index.to_string() };
        Row::new([
            Cell::new(index),
            Cell::new(plain(&gpu.model).into_owned()),
            utilization(gpu, 10),
            Cell::new(memory_bar(gpu, 10)),
            Cell::new(memory_pair(gpu.memory_used_mib, gpu.memory_mib)),
            Cell::new(gpu.temperature_c.map(|degrees| format!("{degrees}°C")).unwrap_or_default()),
            state(gpu),
            Cell::new(plain(&devices::who(gpu)).into_owned()),
        ])
    });
    let node = if several_nodes { 16 } else { 3 };
    let widths =
        [node, 10, 15, 10, 9, 5, 10].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
    Table::new(rows, widths).header(header(["GPU", "MODEL", "USE", "MEMORY", "", "TEMP", "STATE", "WHO"]))
}

fn short_devices(gpus: &[Gpu]) -> Table<'static> {
    let rows = gpus.iter().map(|gpu| {
        let who = gpu.allocations.first().map(|held| format!("{} {}", plain(&held.job), plain(&held.user)));
        let shown = who.map_or_else(|| state(gpu), Cell::new);
        Row::new([Cell::new(gpu.index.to_string()), utilization(gpu, 2), shown])
    });
    Table::new(rows, [Constraint::Length(3), Constraint::Length(7), Constraint::Min(4)])
        .header(header(["GPU", "USE", "WHO"]))
}

fn utilization(gpu: &Gpu, width: usize) -> Cell<'static> {
    match gpu.utilization_percent {
        Some(percent) => Cell::new(format!("{} {percent:>3}%", bar(percent, width))),
        None => Cell::new("·".repeat(width)),
    }
}

fn memory_bar(gpu: &Gpu, width: usize) -> String {
    let percent = gpu.memory_used_mib.map(|used| used * 100 / gpu.memory_mib.max(1));
    percent.map_or_else(|| "·".repeat(width), |percent| bar(u32::try_from(percent).unwrap_or(100), width))
}

fn state(gpu: &Gpu) -> Cell<'static> {
    Cell::new(plain(gpu.state.as_str()).into_owned()).style(style(Tone::of_gpu(&gpu.state)))
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, queues: &[Queue]) {
    let rows = queues.iter().map(|queue| {
        let limit = queue.limit.get("any").map(|limit| format!("/{}", plain(limit))).unwrap_or_default();
        Row::new([
            plain(&queue.queue).into_owned(),
            format!("{}{limit}", gpus(queue.gpu_milli)),
            queue.running.to_string(),
            queue.waiting.to_string(),
            gpus(queue.gpu_milli_waiting),
            queue.longest_wait_ms.map(span).unwrap_or_default(),
        ])
    });
    let widths = [24, 10, 8, 8, 8, 12].map(Constraint::Length);
    let names = ["QUEUE", "GPUS", "RUNNING", "WAITING", "WANTED", "LONGEST WAIT"];
    frame.render_widget(Table::new(rows, widths).header(header(names)), area);
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let look = crate::output::Look { now_ms: view.now_ms, ..Default::default() };
    let rows = view.jobs.iter().skip(view.top).take(area.height.into()).map(|job| {
        Row::new([
            Cell::new(plain(&job.id).into_owned()),
            Cell::new(plain(&job.name).into_owned()),
            Cell::new(plain(&job.user).into_owned()),
            Cell::new(plain(&job.queue).into_owned()),
            Cell::new(plain(job.state.as_str()).into_owned()).style(style(Tone::of_job(&job.state))),
            Cell::new(gpus(job.gpu_milli)),
            Cell::new(ps::elapsed(job, &look)),
            Cell::new(plain(&ps::where_or_why(job, &look)).into_owned()),
        ])
    });
    let widths = [8, 16, 10, 14, 9, 4, 8].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
    let names = ["ID", "NAME", "USER", "QUEUE", "STATE", "GPUS", "TIME", "WHERE / WHY"];
    frame.render_widget(Table::new(rows, widths).header(header(names)), area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let line = match &view.trouble {
        Some(trouble) => {
            let text = format!("{} — jobs run on; what is shown is old", plain(trouble));
            Line::styled(text, Style::new().fg(Color::Red))
        }
        None => Line::styled("q quit   ↑↓ move", Style::new().add_modifier(Modifier::DIM)),
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn header<const N: usize>(names: [&'static str; N]) -> Row<'static> {
    Row::new(names).style(Style::new().add_modifier(Modifier::BOLD))
}

fn style(tone: Tone) -> Style {
    match tone {
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Pending => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
        Tone::Faint => Style::new().add_modifier(Modifier::DIM),
        Tone::Plain => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    fn screen(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(|y| line(y) + "\n").collect()
    }

    fn gpu(index: u32, busy: bool) -> Gpu {
        let held =
            json!([{"job": "7", "task": 0, "milli": 1000, "memory_mib": 81559, "user": "ana", "name": "ft"}]);
        serde_json::from_value(json!({
            "node": "n1", "index": index, "uuid": "GPU-x", "model": "h100", "memory_mib": 81559,
            "memory_used_mib": if busy { 40960 } else { 0 }, "utilization_percent": if busy { 85 } else { 0 },
            "temperature_c": 54, "state": if busy { "allocated" } else { "free" }, "free_milli": 0,
            "allocations": if busy { held } else { json!([]) }, "source": "pretend",
        }))
        .unwrap()
    }

    fn view(devices: u32) -> View {
        let mut view = View { now_ms: 60_000, ..View::default() };
        view.pool = serde_json::from_value(json!({
            "node": "n1", "gpus": devices, "gpus_free": 1, "cpu_milli": 64000, "cpu_held_milli": 8000,
            "memory_bytes": 274877906944i64, "memory_held_bytes": 34359738368i64, "running": 1, "waiting": 1,
            "source": "pretend",
        }))
        .unwrap();
        view.gpus = (0..devices).map(|index| gpu(index, index != 1)).collect();
        view.queues =
            serde_json::from_value(json!([{"queue": "vision", "limit": {"any": "4"}, "gpu_milli": 1000,
            "running": 1, "waiting": 1, "gpu_milli_waiting": 2000, "longest_wait_ms": 12000}]))
            .unwrap();
        let job = |id: &str, state: &str, why: serde_json::Value| {
            json!({"id": id, "name": "ft\u{1b}[2J", "user": "ana", "queue": "vision", "priority": 0, "state": state,
                "gpus": 1, "gpu_milli": 1000, "tasks": 1, "attempt": 1, "submitted_ms": 0, "nodes": ["n1"], "reason": why})
        };
        let waits = job("8", "pending", json!({"code": "DV-DEVICES-BUSY", "text": "1 of 2 is free"}));
        let jobs = vec![waits, job("7", "running", json!(null))];
        view.put_jobs(jobs.into_iter().map(|job| serde_json::from_value(job).unwrap()).collect());
        view
    }

    #[test]
    fn devices_have_bars_and_those_that_run_stand_above_those_that_wait() {
        expect![[r#"
            divvy n1  GPUs 1/2 held  cores 8/64  memory 32Gi/256Gi  1 running  1 waiting  PRETENDED GPUs

            GPU MODEL      USE             MEMORY               TEMP  STATE      WHO
            0   h100       ████████▌·  85% █████····· 40/80Gi   54°C  allocated  7 ft (ana)
            1   h100       ··········   0% ·········· 0/80Gi    54°C  free

            QUEUE                    GPUS       RUNNING  WAITING  WANTED   LONGEST WAIT
            vision                   1/4        1        1        2        12s

            ID       NAME             USER       QUEUE          STATE     GPUS TIME     WHERE / WHY
            7        ft\u{1b}[2J      ana        vision         running   1    1m00s    n1
            8        ft\u{1b}[2J      ana        vision         pending   1    1m00s    DV-DEVICES-BUSY: 1 of 2

            q quit   ↑↓ move
        "#]].assert_eq(&screen(&view(2), 100, 14));
    }

    #[test]
    fn many_devices_stand_in_columns() {
        let text = screen(&view(64), 120, 24);
        assert!(text.lines().any(|line| line.matches("7 ana").count() == 6), "{text}");
    }

    #[test]
    fn no_size_of_the_screen_is_too_small() {
        for (width, height) in [(1, 1), (10, 3), (40, 8), (300, 100)] {
            screen(&view(8), width, height);
        }
    }

    #[test]
    fn bars_fill_by_eighths() {
        assert_eq!(
            [bar(0, 4), bar(50, 4), bar(100, 4), bar(55, 4), bar(999, 4)].join(" "),
            "···· ██·· ████ ██▏· ████"
        );
    }
}
