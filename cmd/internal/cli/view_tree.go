package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// tree draws the run as lines that fit a terminal of the given size: what waits and for what, how long and why, and
// where what runs is running. Where there is room, a reason that does not fit its line gets one of its own; where there
// is too little, steps that are under way go first.
func (v *runView) tree(now time.Time, width, height int, color bool) []string {
	height = max(height-1, 3)
	d := drawing{now: v.clock(now), width: width, color: color}
	least := 1 + len(v.jobs) + len(v.index)
	for _, d.roomy = range []bool{true, false} {
		if least > height {
			break // a large run is not drawn in vain
		}
		d.lines = nil
		d.header(v)
		for _, job := range v.jobs {
			d.job(job, nil)
		}
		if len(d.lines) <= height {
			return d.lines
		}
	}
	d.lines, d.roomy = nil, false
	d.header(v)
	hidden, shown := v.choose(height - len(d.lines) - 1)
	for _, job := range v.jobs {
		if slices.ContainsFunc(job.steps, func(s *stepView) bool { return shown[s] }) {
			d.job(job, shown)
		}
	}
	d.add(2, sgrDim, fmt.Sprintf("and %d more, see swamp run show %s", hidden, v.id))
	return d.lines
}

// choose picks the steps to show in a given number of lines, each job taking one too, and counts the others.
func (v *runView) choose(lines int) (hidden int, shown map[*stepView]bool) {
	shown = map[*stepView]bool{}
	jobs := map[*jobView]bool{}
	for _, rank := range []int{0, 1, 2, 3} {
		for _, job := range v.jobs {
			for _, step := range job.steps {
				if step.rank() != rank {
					continue
				}
				need := 1
				if !jobs[job] {
					need++
				}
				if need > lines {
					hidden++
					continue
				}
				lines -= need
				jobs[job], shown[step] = true, true
			}
		}
	}
	return hidden, shown
}

// rank orders steps by how much a person wants to see them.
func (s *stepView) rank() int {
	switch messages.StepStatus(s.status) {
	case messages.StepFailed:
		return 0
	case messages.StepRunning, messages.StepQueued, messages.StepWaitingApproval:
		return 1
	case messages.StepPending:
		return 2
	default:
		return 3
	}
}

// drawing is a tree in the making.
type drawing struct {
	now   time.Time
	width int
	color bool
	roomy bool // a line may go on in the next one
	lines []string
}

// add appends a line of words, each with its colour; it is cut to the width.
func (d *drawing) add(indent int, words ...string) {
	room := d.width - 1 - indent
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", min(indent, max(d.width-1, 0))))
	for i := 0; i+1 < len(words) && room > 0; i += 2 {
		start, text := words[i], words[i+1]
		if text == "" {
			continue
		}
		text = fit(text, room)
		room -= displayWidth(text)
		if d.color {
			text = colored(start, text)
		}
		b.WriteString(text)
	}
	d.lines = append(d.lines, b.String())
}

func (d *drawing) header(v *runView) {
	n := v.counts()
	var parts []string
	total := 0
	for _, status := range messages.AllStepStatuses() {
		count := n[string(status)]
		total += count
		if count > 0 {
			word := string(status)
			if status == messages.StepQueued {
				word = "waiting"
			}
			parts = append(parts, fmt.Sprintf("%d %s", count, strings.ReplaceAll(word, "_", " ")))
		}
	}
	status, took := v.status, ""
	switch {
	case v.started.IsZero():
		status = "submitting"
	case v.ended.IsZero():
		took = " for " + elapsed(d.now.Sub(v.started))
	default:
		took = " in " + elapsed(v.ended.Sub(v.started))
	}
	d.add(0, sgrBold, oneLine(v.workflow), "", " ", statusColor(status), status, "", took,
		"", fmt.Sprintf("  %s: %s  ", plural(total, "step"), strings.Join(parts, ", ")), sgrDim, v.id)
	if v.err != "" {
		d.add(2, sgrRed, oneLine(v.err))
	}
}

// job draws a job with its steps; shown, where given, says which.
func (d *drawing) job(job *jobView, shown map[*stepView]bool) {
	d.add(2, sgrBold, oneLine(job.name), "", "  ", statusColor(job.status), job.status)
	width := 0
	for _, step := range job.steps {
		if shown == nil || shown[step] {
			width = max(width, displayWidth(oneLine(step.name)))
		}
	}
	width = min(width, max(d.width/3, 8))
	for _, step := range job.steps {
		if shown == nil || shown[step] {
			d.step(step, width)
		}
	}
}

func (d *drawing) step(s *stepView, width int) {
	name := fit(oneLine(s.name), width)
	name += strings.Repeat(" ", width-displayWidth(name)+2)
	color, since := statusColor(s.status), elapsed(d.now.Sub(s.since))
	switch messages.StepStatus(s.status) {
	case messages.StepQueued:
		lost := ""
		if s.lost != "" {
			lost = "; lost its worker " + oneLine(s.lost)
		}
		what, why := s.waiting()
		text := strings.TrimPrefix(what, "waiting") + lost
		if room := d.width - 5 - displayWidth(name+"waiting "+since+text); why != "" && d.roomy && displayWidth(why)+3 > room {
			d.add(4, "", name, color, "waiting "+since, "", text)
			d.add(6+displayWidth(name), sgrDim, why)
			return
		}
		d.add(4, "", name, color, "waiting "+since, "", text, sgrDim, inBrackets(why))
	case messages.StepRunning:
		text := ""
		if s.attempt > 1 {
			text = fmt.Sprintf(" (attempt %d)", s.attempt)
		}
		d.add(4, "", name, color, "running "+since, "", " on "+oneLine(s.worker)+text)
	case messages.StepSucceeded:
		d.add(4, "", name, color, s.status, sgrDim, " in "+elapsed(s.took)+on(s.worker))
	case messages.StepFailed:
		d.add(4, "", name, color, s.status, sgrDim, on(s.worker), "", colon(s.err))
	default:
		d.add(4, "", name, color, strings.ReplaceAll(s.status, "_", " "))
	}
}

func on(worker string) string {
	if worker == "" {
		return ""
	}
	return " on " + oneLine(worker)
}
