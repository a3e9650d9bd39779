package actors

import (
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/swampd/swampd/messages"
)

// Bounds of what a worker may say of itself.
const (
	maxLabels   = 64
	maxCapacity = 10_000
)

// checkEnroll looks at a worker's description of itself, and returns the protocol version to speak.
func (s *session) checkEnroll(p *messages.EnrollParams) (int32, error) {
	if p == nil {
		return 0, messages.Faultf(messages.CodeInvalid, "worker.enroll needs its params")
	}
	protocol, err := messages.NegotiateProtocol(p.GetProtocolMin(), p.GetProtocolMax())
	if err != nil {
		return 0, err
	}
	switch {
	case !short(p.GetMachineId(), 128) || !short(p.GetInstanceUuid(), 128):
		return 0, messages.Faultf(messages.CodeInvalid, "worker.enroll needs a machineId and an instanceUuid of at most 128 printable bytes")
	case p.GetCapacity() < 1 || p.GetCapacity() > maxCapacity:
		return 0, messages.Faultf(messages.CodeInvalid, "a capacity of %d is not between 1 and %d", p.GetCapacity(), maxCapacity)
	case !short(p.GetPlatform(), 64) || !short(p.GetArch(), 64):
		return 0, messages.Faultf(messages.CodeInvalid, "worker.enroll needs a platform and an arch")
	case len(p.GetVersion()) > 128:
		return 0, messages.Faultf(messages.CodeInvalid, "a version has at most 128 bytes")
	case len(p.GetLabels()) > maxLabels:
		return 0, messages.Faultf(messages.CodeInvalid, "%d labels are more than %d", len(p.GetLabels()), maxLabels)
	}
	for _, l := range p.GetLabels() {
		if err := messages.CheckLabel(l.GetKey(), l.GetValue()); err != nil {
			return 0, messages.Faultf(messages.CodeInvalid, "%s", err.Error())
		}
	}
	return protocol, nil
}

// short tells whether s is a printable word of at most limit bytes.
func short(s string, limit int) bool {
	return s != "" && len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// validName tells whether s may name a token or worker.
func validName(s string) bool { return messages.CheckName(s) == nil }

// Failed enrollments that an address may make in a window, and how many addresses are remembered.
const (
	failuresAllowed = 20
	failureWindow   = time.Minute
	failureHosts    = 10_000
)

// failureBook counts failed enrollments by address. It is what every session asks, so it is no actor.
type failureBook struct {
	mu    sync.Mutex
	hosts map[string][]time.Time
}

func newFailureBook() *failureBook { return &failureBook{hosts: make(map[string][]time.Time)} }

func (b *failureBook) add(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.hosts) >= failureHosts {
		for h := range b.hosts {
			if len(b.recent(h)) == 0 {
				delete(b.hosts, h)
			}
		}
		for h := range b.hosts { // all of them are fresh: make room all the same
			if len(b.hosts) < failureHosts {
				break
			}
			delete(b.hosts, h)
		}
	}
	b.hosts[host] = append(b.recent(host), time.Now())
}

func (b *failureBook) tooMany(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.recent(host)) >= failuresAllowed
}

func (b *failureBook) recent(host string) []time.Time {
	times := b.hosts[host]
	for len(times) > 0 && time.Since(times[0]) > failureWindow {
		times = times[1:]
	}
	return times
}
