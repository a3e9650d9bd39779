package workflow

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode/utf8"
)

// Graph draws the steps of a plan as text: one line for each, in an order in which they could run, with what it depends
// on.
func (p *Plan) Graph() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.Name)
	layers := p.jobLayers()
	for layer := range slices.Max(append(layers, 0)) + 1 {
		for j := range p.Jobs {
			if layers[j] != layer {
				continue
			}
			job := &p.Jobs[j]
			fmt.Fprintf(&b, "  job %s%s\n", job.Name, after(job.Needs, job.When, func(i int) string { return p.Jobs[i].Name }))
			for _, o := range p.inOrder(j) {
				s := &p.Steps[o]
				fmt.Fprintf(&b, "    %s%s%s\n", s.Name, s.marks(), after(s.Needs, s.When, func(i int) string { return p.Steps[i].Name }))
			}
		}
	}
	return b.String()
}

// after lists what something depends on.
func after(needs []int, conditions []Condition, name func(int) string) string {
	words := make([]string, len(needs))
	for k, n := range needs {
		words[k] = name(n)
		if c := when(conditions, k); c != OnSucceeded {
			words[k] += " (" + c.String() + ")"
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " <- " + strings.Join(words, ", ")
}

// marks say what is not seen in the name of a step.
func (s *Step) marks() string {
	var marks []string
	switch {
	case s.Task == nil:
	case s.Task.Workflow != nil:
		marks = append(marks, "workflow "+s.Task.Workflow.File)
	case s.Task.Approval != nil:
		marks = append(marks, "approval")
	default:
		marks = append(marks, "assert")
	}
	if s.ForEach != nil {
		marks = append(marks, "for each "+s.ForEach.Item)
	}
	if !s.Placement.IsZero() {
		marks = append(marks, s.Placement.Requirement())
	}
	if len(marks) == 0 {
		return ""
	}
	return " [" + strings.Join(marks, "; ") + "]"
}

// jobLayers is for each job the longest way to it.
func (p *Plan) jobLayers() []int {
	return layersOf(len(p.Jobs), func(i int) []int { return p.Jobs[i].Needs })
}

func (p *Plan) stepLayers() []int {
	return layersOf(len(p.Steps), func(i int) []int { return p.Steps[i].Needs })
}

func layersOf(n int, needs func(int) []int) []int {
	e := reversed(n, func(i int) ([]int, []Condition) { return needs(i), nil })
	layers, waits := make([]int, n), make([]int, n)
	var ready []int
	for i := range n {
		if waits[i] = len(needs(i)); waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	for k := 0; k < len(ready); k++ {
		users, _ := e.of(ready[k])
		for _, u := range users {
			layers[u] = max(layers[u], layers[ready[k]]+1)
			if waits[u]--; waits[u] == 0 {
				ready = append(ready, u)
			}
		}
	}
	return layers
}

// inOrder lists the steps of a job so that each comes after those that it needs.
func (p *Plan) inOrder(job int) []int {
	layers := p.stepLayers()
	order := slices.Clone(p.Jobs[job].Steps)
	slices.SortStableFunc(order, func(a, b int) int { return layers[a] - layers[b] })
	return order
}

// GraphDOT draws the steps for Graphviz: a cluster for each job.
func (p *Plan) GraphDOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n  rankdir=LR;\n  compound=true;\n  node [shape=box];\n", dotText(p.Name))
	for j := range p.Jobs {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%s;\n", j, dotText(p.Jobs[j].Name))
		for _, o := range p.Jobs[j].Steps {
			fmt.Fprintf(&b, "    s%d [label=%s];\n", o, dotText(p.Steps[o].Name+p.Steps[o].marks()))
		}
		b.WriteString("  }\n")
	}
	for i := range p.Steps {
		for k, n := range p.Steps[i].Needs {
			fmt.Fprintf(&b, "  s%d -> s%d%s;\n", n, i, dotEdge(when(p.Steps[i].When, k), ""))
		}
	}
	for i := range p.Jobs {
		for k, n := range p.Jobs[i].Needs {
			from, to := p.Jobs[n].Steps, p.Jobs[i].Steps
			ends := fmt.Sprintf("ltail=cluster_%d, lhead=cluster_%d", n, i)
			fmt.Fprintf(&b, "  s%d -> s%d%s;\n", from[len(from)-1], to[0], dotEdge(when(p.Jobs[i].When, k), ends))
		}
	}
	b.WriteString("}\n")
	return b.String()
}

func dotEdge(c Condition, more string) string {
	var parts []string
	if c != OnSucceeded {
		parts = append(parts, "label="+dotText(c.String())+", style=dashed")
	}
	if more != "" {
		parts = append(parts, more)
	}
	if len(parts) == 0 {
		return ""
	}
	return " [" + strings.Join(parts, ", ") + "]"
}

// dotText is a text in quotes as DOT reads it.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// Sizes of the drawing, in pixels.
const (
	svgRow, svgGap, svgPad, svgChar = 34, 60, 16, 7
)

// box is where a step or job stands in the drawing.
type box struct{ x, y, w, h int }

// GraphSVG draws the steps as a picture: the jobs from left to right by what they need, and so the steps in each.
func (p *Plan) GraphSVG() string {
	steps, jobs := make([]box, len(p.Steps)), make([]box, len(p.Jobs))
	layers, jobLayers := p.stepLayers(), p.jobLayers()
	x, height := svgPad, 0
	for layer := range slices.Max(append(jobLayers, 0)) + 1 {
		y, width := svgPad, 0
		for j := range p.Jobs {
			if jobLayers[j] != layer {
				continue
			}
			jobs[j] = p.layOut(j, x, y, layers, steps)
			width = max(width, jobs[j].w)
			y += jobs[j].h + svgPad
		}
		height = max(height, y)
		x += width + svgGap
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", x, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(p.Name))
	b.WriteString(`<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>` + "\n")
	for j, at := range jobs {
		drawBox(&b, at, p.Jobs[j].Name, "#f4f4f4", 14)
	}
	for i := range p.Jobs {
		for k, n := range p.Jobs[i].Needs {
			drawArrow(&b, jobs[n], jobs[i], when(p.Jobs[i].When, k))
		}
	}
	for o, at := range steps {
		drawBox(&b, at, p.Steps[o].Name, "#ffffff", at.h/2+4)
	}
	for i := range p.Steps {
		for k, n := range p.Steps[i].Needs {
			drawArrow(&b, steps[n], steps[i], when(p.Steps[i].When, k))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// layOut places the steps of a job in columns and returns the place of the job around them.
func (p *Plan) layOut(job, x, y int, layers []int, steps []box) box {
	at := box{x: x, y: y, w: textWidth(p.Jobs[job].Name), h: 0}
	columns := map[int][]int{}
	last := 0
	for _, o := range p.Jobs[job].Steps {
		columns[layers[o]] = append(columns[layers[o]], o)
		last = max(last, layers[o])
	}
	left := x + svgPad
	for c := range last + 1 {
		width := 0
		for row, o := range columns[c] {
			steps[o] = box{left, y + 2*svgPad + row*svgRow, textWidth(p.Steps[o].Name), svgRow - 10}
			width = max(width, steps[o].w)
			at.h = max(at.h, steps[o].y+svgRow-y+4)
		}
		left += width + svgGap
	}
	at.w = max(at.w, left-svgGap+svgPad-x)
	return at
}

func textWidth(s string) int { return utf8.RuneCountInString(s)*svgChar + 2*svgPad }

func drawBox(b *strings.Builder, at box, text, fill string, down int) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="#555"/>`, at.x, at.y, at.w, at.h, fill)
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", at.x+svgPad/2, at.y+down, html.EscapeString(text))
}

func drawArrow(b *strings.Builder, from, to box, c Condition) {
	x1, y1, x2, y2 := from.x+from.w, from.y+from.h/2, to.x, to.y+to.h/2
	dash := ""
	if c != OnSucceeded {
		dash = ` stroke-dasharray="4 3"`
	}
	bend := max((x2-x1)/2, svgGap/2)
	fmt.Fprintf(b, `<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="#555"%s marker-end="url(#arrow)"><title>%s</title></path>`+"\n",
		x1, y1, x1+bend, y1, x2-bend, y2, x2, y2, dash, html.EscapeString(c.String()))
}
