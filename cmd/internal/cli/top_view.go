package cli

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/swampd/swampd/messages"
)

// View implements tea.Model.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "swamp actor top"
	return v
}

// lines is the whole screen, each line as wide as the screen at most.
func (m *topModel) lines() []string {
	var lines []string
	switch {
	case m.opened != nil:
		lines = append(lines, sgrBold+fit(oneLine(m.opened.title), m.width)+sgrReset)
		for _, l := range m.opened.lines[min(m.scroll, len(m.opened.lines)):] {
			lines = append(lines, fit(safeText(l), m.width))
		}
		lines = cut(lines, m.height-1)
		return append(lines, m.help("up/down scroll   esc back"))
	case m.frame == nil && m.err == nil:
		return []string{"asking the orchestrator …"}
	case m.frame == nil:
		return []string{fit(oneLine(m.err.Error()), m.width), m.help("q quit")}
	}
	lines = m.head()
	rest := m.height - len(lines) - 1
	for p := range panes {
		share := rest / int(panes-p)
		block := cut(m.list(p), share)
		lines, rest = append(lines, block...), rest-len(block)
	}
	if m.filtering {
		return append(lines, fit("/"+oneLine(m.filter)+"_", m.width))
	}
	help := "tab list   s sort   / filter   enter look into   p pause   q quit"
	if m.filter != "" {
		help = "filter: " + oneLine(m.filter) + "   esc clears it   " + help
	}
	return append(lines, m.help(help))
}

func (m *topModel) help(text string) string { return sgrDim + fit(text, m.width) + sgrReset }

func cut(lines []string, most int) []string { return lines[:max(min(len(lines), most), 0)] }

// head is what is said in numbers.
func (m *topModel) head() []string {
	f := m.frame
	now := f.GetAt()
	state := ""
	switch {
	case m.err != nil:
		state = "   NO ANSWER: " + oneLine(m.err.Error())
	case m.paused:
		state = "   PAUSED"
	}
	rates := ratesOf(m.before, f)
	lines := []string{
		fmt.Sprintf("swampd %s   up %s   %s%s", oneLine(f.GetVersion()), strings.TrimSuffix(ago(messages.GoTime(now), f.GetStartedAt()), " ago"), moment(now), state),
		fmt.Sprintf("fleet    %s   slots %d free of %d", countText(f.GetWorkersByStatus(), "no workers"), f.GetSlotsFree(), f.GetSlotsTotal()),
		fmt.Sprintf("work     %d runs live   %d steps in line   ended: runs %s; steps %s", f.GetRunsLive(), f.GetWaiting(), countText(f.GetRunsEnded(), "none"), countText(f.GetStepsEnded(), "none")),
		fmt.Sprintf("rates    %.1f steps/s   %.1f runs/s   %.1f commits/s   %.1f commits a batch   %s a batch%s", rates.steps, rates.runs, rates.commits, rates.perBatch, after(rates.batchMs), rates.since),
		fmt.Sprintf("actors   %s   restarts %d   findings %d", countText(f.GetActorsByKind(), "none"), f.GetRestarts(), f.GetFindings()),
	}
	for i := range lines {
		lines[i] = fit(lines[i], m.width)
	}
	return append(lines, "")
}

// topRates is what happens in a second.
type topRates struct {
	steps, runs, commits, perBatch, batchMs float64
	since                                   string
}

// ratesOf compares two frames; without a former one it is the mean since the start.
func ratesOf(before, f *messages.ActorTopResult) topRates {
	r := topRates{}
	from := messages.GoTime(before.GetAt())
	if before == nil {
		before, from, r.since = &messages.ActorTopResult{}, messages.GoTime(f.GetStartedAt()), "   (since the start)"
	}
	seconds := messages.GoTime(f.GetAt()).Sub(from).Seconds()
	if seconds <= 0 || f.GetCommits() < before.GetCommits() { // it was started anew between them
		return topRates{}
	}
	r.steps = (total(f.GetStepsEnded()) - total(before.GetStepsEnded())) / seconds
	r.runs = (total(f.GetRunsEnded()) - total(before.GetRunsEnded())) / seconds
	commits, syncs := f.GetCommits()-before.GetCommits(), f.GetSyncs()-before.GetSyncs()
	r.commits = commits / seconds
	if syncs > 0 {
		r.perBatch, r.batchMs = commits/syncs, (f.GetSyncMs()-before.GetSyncMs())/syncs
	}
	return r
}

func total(counts []*messages.TopCount) float64 {
	n := 0.0
	for _, c := range counts {
		n += c.GetCount()
	}
	return n
}

func countText(counts []*messages.TopCount, none string) string {
	if len(counts) == 0 {
		return none
	}
	var parts []string
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%.0f %s", c.GetCount(), oneLine(c.GetName())))
	}
	return strings.Join(parts, ", ")
}

// list is one of the lists, with the selected row marked if it has the focus.
func (m *topModel) list(p topPane) []string {
	t := table{}
	var title string
	switch p {
	case paneWorkers:
		title = "1 workers"
		t.columns = []string{"WORKER", "STATUS", "SLOTS", "LABELS"}
		for _, w := range m.workers() {
			t.add(w.GetName(), w.GetStatus(), fmt.Sprintf("%d/%d", w.GetTaken(), w.GetCapacity()), orDash(labels(w.GetLabels())))
		}
	case paneQueue:
		title = "2 queue"
		t.columns = []string{"REQUIREMENT", "WAITING", "OLDEST", "WHY"}
		for _, c := range m.classes() {
			t.add(c.GetRequirement(), fmt.Sprint(c.GetWaiting()), age(messages.Duration(c.GetOldestMs())), c.GetWhy())
		}
	default:
		title = "3 actors"
		t.columns = []string{"ACTOR", "KIND", "STATE", "MAILBOX", "PROCESSED", "LAST MESSAGE", "AGO"}
		for _, a := range m.actors() {
			t.add(a.GetPid(), a.GetKind(), orDash(a.GetState()), fmt.Sprint(a.GetMailbox()), fmt.Sprintf("%.0f", a.GetProcessed()),
				orDash(a.GetLastMessage()), strings.TrimSuffix(ago(messages.GoTime(m.frame.GetAt()), a.GetLastMessageAt()), " ago"))
		}
	}
	var b strings.Builder
	_ = t.write(&b, false) // a Builder takes everything
	rows := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	lines := []string{sgrBold + fit(fmt.Sprintf("%s, by %s", title, topSorts(p)[m.sorts[p]]), m.width) + sgrReset}
	for i, row := range rows {
		row = fit(strings.TrimRight(row, " "), max(m.width-2, 0))
		switch {
		case p == m.focus && i == m.cursor[p]+1 && len(t.rows) > 0:
			lines = append(lines, sgrCyan+"> "+row+sgrReset)
		default:
			lines = append(lines, "  "+row)
		}
	}
	return append(lines, "")
}
