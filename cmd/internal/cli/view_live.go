package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/swampd/swampd/messages"
)

// How often a live tree is drawn: at once after a pause, and no more often than anybody can see.
const (
	drawEvery = 80 * time.Millisecond
	tickEvery = time.Second
	// maxHeld is how much output waits for the next drawing before it is printed without waiting.
	maxHeld = 64 << 10
)

// livePrinter shows a run on a terminal: output above, below it a tree that is drawn again and again.
type livePrinter struct {
	out   io.Writer
	now   func() time.Time
	size  func() (width, height int, ok bool)
	color bool

	mu     sync.Mutex
	view   *runView
	joiner *joiner
	held   bytes.Buffer // lines that go above the tree
	drawn  int          // lines of the tree on the screen
	failed error

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

func newLivePrinter(h *Host, view *runView) *livePrinter {
	p := &livePrinter{
		out: h.Stdout, now: h.Now, size: h.Terminal, color: h.color(), view: view,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	p.joiner = newJoiner(joinLimit, func(key outputKey, text string) error {
		p.above(colored(p.sgr(sgrDim), oneLine(key.step)+" |") + " " + safeText(strings.TrimSuffix(text, "\r")))
		return nil
	})
	go p.loop() // ends at close, which waits for it
	return p
}

func (p *livePrinter) sgr(start string) string {
	if p.color {
		return start
	}
	return ""
}

func (p *livePrinter) event(e *messages.RunEvent) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.GetKind() == messages.EventStepOutput {
		_ = p.joiner.add(e) // its sink cannot fail
	} else {
		if messages.EndsDispatch(e.GetKind()) {
			_ = p.joiner.endStep(stepKey(e))
		}
		p.view.apply(e, p.now())
	}
	if p.held.Len() > maxHeld {
		p.draw()
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return p.failed
}

func (p *livePrinter) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.above(colored(p.sgr(sgrYellow), oneLine(text)))
	p.draw()
}

func (p *livePrinter) above(line string) {
	p.held.WriteString(line)
	p.held.WriteByte('\n')
}

// close draws the tree for the last time. It stays on the screen.
func (p *livePrinter) close() error {
	close(p.stop)
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.joiner.endAll()
	p.draw()
	return p.failed
}

// loop draws what has changed, and once a second because time passes.
func (p *livePrinter) loop() {
	defer close(p.done)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		case <-p.wake:
		}
		p.mu.Lock()
		p.draw()
		p.mu.Unlock()
		limit := time.NewTimer(drawEvery)
		select {
		case <-limit.C:
		case <-p.stop:
			limit.Stop()
			return
		}
	}
}

// draw replaces the tree on the screen, in one write. mu is held.
func (p *livePrinter) draw() {
	width, height, ok := p.size()
	if !ok {
		width, height = 80, 24
	}
	var b bytes.Buffer
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	b.WriteString("\r\x1b[J")
	b.Write(p.held.Bytes())
	p.held.Reset()
	lines := p.view.tree(p.now(), width, height, p.color)
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	p.drawn = len(lines)
	if _, err := p.out.Write(b.Bytes()); err != nil && p.failed == nil {
		p.failed = err
	}
}
