//! The live table of the demo: devices and jobs, drawn in place.

use std::io;

use divvy_api::Gpu;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{Terminal, TerminalOptions, Viewport, backend::CrosstermBackend};

use super::story::Story;
use crate::output::{Look, now_ms, plain, render};

/// A part of the terminal that is redrawn in place.
pub(super) struct Live {
    screen: Terminal<CrosstermBackend<io::Stdout>>,
}

/// The lines that everything needs: eight devices, a header, the jobs of the script.
const LINES: u16 = 30;

impl Live {
    /// `None` where standard output is no terminal, or one that cannot tell where its cursor is.
    pub(super) fn on_a_terminal() -> Option<Self> {
        if !io::IsTerminal::is_terminal(&io::stdout()) || !io::IsTerminal::is_terminal(&io::stdin()) {
            return None;
        }
        let (_, rows) = crossterm::terminal::size().ok()?;
        let viewport = Viewport::Inline(LINES.min(rows.saturating_sub(1)));
        let backend = CrosstermBackend::new(io::stdout());
        Terminal::with_options(backend, TerminalOptions { viewport }).ok().map(|screen| Self { screen })
    }

    /// Draws the current state.
    pub(super) fn draw(&mut self, story: &Story, gpus: &[Gpu]) -> io::Result<()> {
        let look = Look { now_ms: now_ms(), ..Look::default() };
        let jobs = render(&story.rows(), &look);
        let bar = devices(gpus);
        self.screen.draw(|frame| {
            let lines = u16::try_from(bar.len()).unwrap_or(u16::MAX);
            let [top, rest] =
                Layout::vertical([Constraint::Length(lines + 1), Constraint::Min(1)]).areas(frame.area());
            frame.render_widget(Paragraph::new(bar), top);
            frame.render_widget(Paragraph::new(jobs.lines().map(Line::raw).collect::<Vec<_>>()), rest);
        })?;
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The table at the end shows all of this again.
        let _ = self.screen.clear();
        let _ = self.screen.show_cursor();
    }
}

/// Devices side by side, four in a line: `GPU 0 7 gang`.
fn devices(gpus: &[Gpu]) -> Vec<Line<'static>> {
    let cell = |gpu: &Gpu| {
        let held = gpu.allocations.first().map(|held| format!("{} {}", held.job, held.name));
        let text = held.unwrap_or_else(|| gpu.state.to_string());
        format!("GPU {:<2} {:<17}", gpu.index, plain(&text).chars().take(16).collect::<String>())
    };
    gpus.chunks(4).map(|four| Line::raw(four.iter().map(cell).collect::<String>())).collect()
}
