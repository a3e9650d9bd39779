package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/swampd/swampd/messages"
)

// topEvery is how often the view is made anew.
const topEvery = time.Second

// topPane is one of the lists of the view.
type topPane int

const (
	paneWorkers topPane = iota
	paneQueue
	paneActors
	panes
)

// topSorts are what each list can be sorted by, the first one first.
func topSorts(p topPane) []string {
	switch p {
	case paneWorkers:
		return []string{"load", "name", "status"}
	case paneQueue:
		return []string{"waiting", "oldest", "requirement"}
	default:
		return []string{"mailbox", "processed", "last", "pid"}
	}
}

// topModel is the state of the full-screen view. It asks for frames and details by commands, and draws what it has.
type topModel struct {
	fetch  func() tea.Msg                          // a topFrame
	detail func(pane topPane, name string) tea.Msg // a topDetail
	width  int
	height int

	frame, before *messages.ActorTopResult
	err           error
	paused        bool

	focus     topPane
	sorts     [panes]int
	cursor    [panes]int
	filter    string
	filtering bool

	opened *topDetail // what was drilled into; nil: the lists are shown
	scroll int
}

// topFrame is a glance, or why there is none; topDetail is what was drilled into; topTick asks for the next frame.
type (
	topFrame struct {
		result *messages.ActorTopResult
		err    error
	}
	topDetail struct {
		title string
		lines []string
	}
	topTick struct{}
)

var _ tea.Model = (*topModel)(nil)

func (m *topModel) Init() tea.Cmd { return tea.Cmd(m.fetch) }

func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topFrame:
		if m.err = msg.err; msg.err == nil && !m.paused {
			m.before, m.frame = m.frame, msg.result
		}
		m.clamp()
		return m, tea.Tick(topEvery, func(time.Time) tea.Msg { return topTick{} })
	case topTick:
		return m, tea.Cmd(m.fetch)
	case topDetail:
		m.opened, m.scroll = &msg, 0
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// key handles one key. What is typed into the filter is no command.
func (m *topModel) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	if m.filtering {
		m.typed(k, name)
		m.clamp()
		return nil
	}
	if m.opened != nil {
		switch name {
		case "esc", "backspace", "left", "h", "q":
			m.opened = nil
		case "down", "j":
			m.scroll = min(m.scroll+1, max(len(m.opened.lines)-1, 0))
		case "up", "k":
			m.scroll = max(m.scroll-1, 0)
		}
		return nil
	}
	switch name {
	case "q":
		return tea.Quit
	case "tab", "right":
		m.focus = (m.focus + 1) % panes
	case "shift+tab", "left":
		m.focus = (m.focus + panes - 1) % panes
	case "1", "2", "3":
		m.focus = topPane(name[0] - '1')
	case "s":
		m.sorts[m.focus] = (m.sorts[m.focus] + 1) % len(topSorts(m.focus))
	case "/":
		m.filtering = true
	case "esc":
		m.filter = ""
	case "p":
		m.paused = !m.paused
	case "down", "j":
		m.cursor[m.focus]++
	case "up", "k":
		m.cursor[m.focus]--
	case "enter":
		return m.drill()
	}
	m.clamp()
	return nil
}

// typed takes a key of the filter.
func (m *topModel) typed(k tea.KeyPressMsg, name string) {
	switch name {
	case "enter":
		m.filtering = false
	case "esc":
		m.filtering, m.filter = false, ""
	case "backspace":
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	default:
		m.filter += k.Key().Text
	}
}

// drill asks for more of what is selected.
func (m *topModel) drill() tea.Cmd {
	pane, names := m.focus, m.names(m.focus)
	if m.cursor[pane] >= len(names) {
		return nil
	}
	name := names[m.cursor[pane]]
	return func() tea.Msg { return m.detail(pane, name) }
}

// clamp keeps the selection within the lists.
func (m *topModel) clamp() {
	for p := range panes {
		m.cursor[p] = max(min(m.cursor[p], len(m.names(p))-1), 0)
	}
}

// names are what the rows of a list are called, in their order.
func (m *topModel) names(p topPane) []string {
	var names []string
	switch p {
	case paneWorkers:
		for _, w := range m.workers() {
			names = append(names, w.GetName())
		}
	case paneQueue:
		for _, c := range m.classes() {
			names = append(names, c.GetRequirement())
		}
	default:
		for _, a := range m.actors() {
			names = append(names, a.GetPid())
		}
	}
	return names
}

func (m *topModel) wanted(texts ...string) bool {
	return m.filter == "" || slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(m.filter)) })
}

func (m *topModel) workers() []*messages.TopWorker {
	list := slices.DeleteFunc(slices.Clone(m.frame.GetWorkers()), func(w *messages.TopWorker) bool {
		return !m.wanted(w.GetName(), w.GetStatus(), labels(w.GetLabels()))
	})
	slices.SortStableFunc(list, func(a, b *messages.TopWorker) int {
		switch topSorts(paneWorkers)[m.sorts[paneWorkers]] {
		case "name":
			return strings.Compare(a.GetName(), b.GetName())
		case "status":
			return strings.Compare(a.GetStatus(), b.GetStatus())
		default:
			return cmp.Compare(b.GetTaken(), a.GetTaken())
		}
	})
	return list
}

func (m *topModel) classes() []*messages.TopClass {
	list := slices.DeleteFunc(slices.Clone(m.frame.GetClasses()), func(c *messages.TopClass) bool { return !m.wanted(c.GetRequirement(), c.GetWhy()) })
	slices.SortStableFunc(list, func(a, b *messages.TopClass) int {
		switch topSorts(paneQueue)[m.sorts[paneQueue]] {
		case "oldest":
			return cmp.Compare(b.GetOldestMs(), a.GetOldestMs())
		case "requirement":
			return strings.Compare(a.GetRequirement(), b.GetRequirement())
		default:
			return cmp.Compare(b.GetWaiting(), a.GetWaiting())
		}
	})
	return list
}

func (m *topModel) actors() []*messages.ActorItem {
	list := slices.DeleteFunc(slices.Clone(m.frame.GetActors()), func(a *messages.ActorItem) bool {
		return !m.wanted(a.GetPid(), a.GetKind(), a.GetState(), a.GetLastMessage())
	})
	slices.SortStableFunc(list, func(a, b *messages.ActorItem) int {
		switch topSorts(paneActors)[m.sorts[paneActors]] {
		case "processed":
			return cmp.Compare(b.GetProcessed(), a.GetProcessed())
		case "last":
			return messages.GoTime(b.GetLastMessageAt()).Compare(messages.GoTime(a.GetLastMessageAt()))
		case "pid":
			return strings.Compare(a.GetPid(), b.GetPid())
		default:
			return cmp.Compare(b.GetMailbox(), a.GetMailbox())
		}
	})
	return list
}
