package sim

import (
	"strconv"
	"time"

	"github.com/swampd/swampd/messages"
)

// silence is after how long without a byte a peer is taken for gone.
func (p *process) silence() time.Duration { return 3 * messages.Duration(p.terms.GetPingMs()) }

// promised notes that the orchestrator owned the books when that was sent; mu is held. It counts for what this connection
// was given.
func (p *process) promised(sent time.Time) {
	for _, t := range p.known {
		if !t.waits {
			t.fence = sent.Add(p.span())
		}
	}
	p.setFence()
}

// span is how long a promise keeps a step alive.
func (p *process) span() time.Duration {
	return messages.Duration(p.terms.GetGraceMs() - p.terms.GetKillMarginMs())
}

// setFence has the next fence fall in time; mu is held.
func (p *process) setFence() {
	next := time.Now().Add(time.Hour)
	for _, t := range p.known {
		if !t.ended && t.fence.Before(next) {
			next = t.fence
		}
	}
	p.fence.Reset(time.Until(next))
}

// fenceOff kills what nobody has promised to own for too long.
func (p *process) fenceOff() {
	p.a.w.mu.Lock()
	defer p.a.w.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	for _, t := range p.tasks() {
		if !t.ended && !t.fence.After(time.Now()) {
			p.a.w.tally.Fenced++
			t.lose("out of reach for too long")
		}
	}
	p.setFence()
}

// ping asks for promises.
func (l *link) ping() {
	p := l.p
	p.a.w.mu.Lock()
	every := messages.Duration(p.terms.GetPingMs())
	p.a.w.mu.Unlock()
	timer := time.NewTicker(every)
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-timer.C:
		case <-l.gone:
			return
		case <-p.ctx.Done():
			return
		}
		id := "ping-" + strconv.Itoa(n)
		p.a.w.mu.Lock()
		l.pings[id] = time.Now()
		p.a.w.mu.Unlock()
		l.send(&messages.Frame{Id: id, Body: &messages.Frame_Request{Request: messages.NewRequest(messages.VerbWorkerPing, &messages.PingParams{})}})
	}
}

// pong takes the answer to a ping.
func (l *link) pong(id string) {
	w := l.p.a.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if sent, ok := l.pings[id]; ok {
		delete(l.pings, id)
		if l.p.link == l {
			l.p.promised(sent)
		}
	}
}
