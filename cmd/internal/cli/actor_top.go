package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

// The size of a frame that is printed once where there is no terminal.
const (
	onceWidth  = 160
	onceHeight = 60
)

func (a *app) actorTopCommand() *cobra.Command {
	once := false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show fleet, queue, mailboxes, commits and throughput on the whole screen",
		Long: "Show the fleet, the queue by requirement, the hottest mailboxes, commits and throughput on the whole screen, once a second.\n" +
			"Keys: tab changes the list, s its order, / filters, enter looks into what is selected (why a worker, which steps wait, one\n" +
			"actor), p pauses, q quits. It needs a terminal; --once prints one frame instead.",
		Example: "  swamp actor top\n  swamp actor top --once --output json",
		Args:    wants(),
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one frame and end")
	a.addFormat(cmd.Flags())
	a.addClient(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, _ []string, from settings) error {
		width, height, terminal := a.host.Terminal()
		switch {
		case !once && !terminal:
			return usagef("actor top needs a terminal: --once prints one frame")
		case !once && a.json():
			return usagef("invalid value of %s: actor top fills the screen; --once prints one frame as JSON", from.name("output"))
		}
		c, err := a.newClient(from)
		if err != nil {
			return err
		}
		if once {
			if !terminal {
				width, height = onceWidth, onceHeight
			}
			return a.topOnce(cmd.Context(), c, width, height)
		}
		return a.top(cmd.Context(), c)
	})
}

func glance(ctx context.Context, c *client) (*messages.ActorTopResult, error) {
	return answer[*messages.ActorTopResult](c.call(ctx, messages.VerbActorTop, &messages.ActorTopParams{}, true))
}

func (a *app) topOnce(ctx context.Context, c *client, width, height int) error {
	frame, err := glance(ctx, c)
	if err != nil {
		return err
	}
	if a.json() {
		return printShape(a.host.Stdout, frame)
	}
	m := &topModel{width: width, height: height, frame: frame, focus: panes}
	lines := m.lines()
	text := strings.Join(lines[:len(lines)-1], "\n")
	if !a.host.color() {
		text = uncolored(text)
	}
	_, err = fmt.Fprintln(a.host.Stdout, strings.TrimRight(text, "\n"))
	return err
}

func uncolored(s string) string { return regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(s, "") }

// top runs the full-screen view until its user has enough.
func (a *app) top(ctx context.Context, c *client) error {
	m := &topModel{
		fetch: func() tea.Msg {
			frame, err := glance(ctx, c)
			return topFrame{frame, err}
		},
		detail: func(pane topPane, name string) tea.Msg { return a.topDetail(ctx, c, pane, name) },
	}
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(a.host.Stdout), tea.WithEnvironment(a.host.Environ()))
	_, err := program.Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return errInterrupted
	}
	if err != nil {
		return fmt.Errorf("show the view: %w", err)
	}
	return nil
}

// topDetail is what the commands say of what was selected: why a worker, which steps wait, one actor.
func (a *app) topDetail(ctx context.Context, c *client, pane topPane, name string) topDetail {
	var out bytes.Buffer
	b := &app{host: &Host{Stdout: &out, Stderr: io.Discard, Now: a.host.Now, LookupEnv: a.host.LookupEnv, Terminal: func() (int, int, bool) { return 0, 0, false }}, format: a.format}
	var err error
	switch pane {
	case paneWorkers:
		var why *messages.WhyResult
		if why, err = answer[*messages.WhyResult](c.call(ctx, messages.VerbWhy, &messages.WhyParams{Subject: name}, true)); err == nil {
			out.WriteString(why.GetText())
		}
	case paneQueue:
		var queue *messages.WorkerQueueListResult
		if queue, err = answer[*messages.WorkerQueueListResult](c.call(ctx, messages.VerbWorkerQueueList, &messages.WorkerQueueListParams{}, true)); err == nil {
			t := table{columns: []string{"STEP", "WAITS", "RUN", "WORKFLOW"}}
			for _, q := range queue.GetItems() {
				if q.GetRequirement() == name {
					t.add(q.GetJobName()+"/"+q.GetStepName(), age(messages.Duration(q.GetAgeMs())), q.GetRunId(), q.GetWorkflowName())
				}
			}
			err = t.write(&out, false)
		}
	default:
		var actor *messages.ActorInspectResult
		if actor, err = answer[*messages.ActorInspectResult](c.call(ctx, messages.VerbActorInspect, &messages.ActorInspectParams{Pid: name}, true)); err == nil {
			err = b.writeInspection(actor)
		}
	}
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	return topDetail{title: name, lines: wrapped(out.String(), max(detailWidth(a.host), 20))}
}

func detailWidth(h *Host) int {
	width, _, _ := h.Terminal()
	return width
}

// wrapped breaks lines that are wider than the screen, between words where it can.
func wrapped(text string, width int) []string {
	var lines []string
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		for displayWidth(line) > width {
			at, n := 0, 0
			for i, r := range line {
				if n += runeWidth(r); n > width {
					break
				}
				if r == ' ' && i > 0 {
					at = i
				}
			}
			if at == 0 {
				break // one long word is cut by the view
			}
			lines, line = append(lines, line[:at]), strings.TrimLeft(line[at:], " ")
		}
		lines = append(lines, line)
	}
	return lines
}
