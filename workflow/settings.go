package workflow

import (
	"strings"
	"time"

	"github.com/swampd/swampd/messages"
)

// maxTarget is the longest name of a worker: that of a token, a dash and eight digits.
const maxTarget = 64 + 9

// settings are the keys that workflow, job and step have in common, as one of them gives them. What it does not give
// is nil or empty and inherited.
type settings struct {
	target, platform *string
	labels           *messages.Labels
	queueTimeout     *time.Duration
	queueTimeoutAt   int // where the key stands, or -1
	lost             messages.OnWorkerLost
	env              messages.Labels
}

// inherited is what the steps of a scope get.
type inherited struct {
	placement    messages.Placement
	queueTimeout *time.Duration
	lost         messages.OnWorkerLost
	env          messages.Labels
}

// setting reads a key into s, and tells whether it is one of these.
func (d *decoder) setting(e *entry, s *settings) bool {
	switch e.key {
	case "env":
		s.env, _ = d.pairs(e, d.variable)
	case "labels":
		if d.cleared(e, "{}") {
			s.labels = new(messages.Labels)
		} else if labels, ok := d.pairs(e, d.label); ok {
			s.labels = &labels
		}
	case "target":
		s.target = d.placementText(e, isTarget, "a worker's name or instance uuid: lower-case letters, digits and . _ -")
		if s.target != nil && *s.target == "loopback" {
			d.warned.add(e.value.at, "the worker 'loopback' takes only steps without a placement")
		}
	case "platform":
		s.platform = d.placementText(e, isPlatform, "os or os/arch in Go's names, such as linux or linux/amd64")
		if s.platform != nil {
			d.warnPlatform(e, *s.platform)
		}
	case "queueTimeout":
		s.queueTimeoutAt = e.at
		if t, ok := d.seconds(e); ok {
			s.queueTimeout = &t
		}
	case "onWorkerLost":
		lost, _ := d.word(e.value, "'onWorkerLost'", string(messages.LostRequeue), string(messages.LostFail))
		s.lost = messages.OnWorkerLost(lost)
	default:
		return false
	}
	return true
}

// cleared tells whether a key of the placement has no value at all. That clears what would be inherited, as an
// explicitly empty value does, but it may as well be a value that somebody forgot or commented out.
func (d *decoder) cleared(e *entry, empty string) bool {
	if !e.value.null() {
		return false
	}
	d.warned.add(e.at, "%s is empty and requires nothing: write %s if that is meant", quote(e.key), empty)
	return true
}

func (d *decoder) placementText(e *entry, valid func(string) bool, what string) *string {
	if d.cleared(e, `""`) {
		return new(string)
	}
	s, ok := d.text(e.value, quote(e.key))
	if !ok {
		return nil
	}
	if s != "" && !valid(s) {
		d.found.add(e.value.at, "the %s %s: it must be %s", e.key, quote(s), what)
		return nil
	}
	return &s
}

func isTarget(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c >= 'A' && c <= 'Z') || (!letterOrDigit(c) && (i == 0 || strings.IndexByte("._-", c) < 0)) {
			return false
		}
	}
	return len(s) <= maxTarget
}

func isPlatform(s string) bool {
	os, arch, both := strings.Cut(s, "/")
	return isPlatformWord(os) && (!both || isPlatformWord(arch))
}

func isPlatformWord(s string) bool {
	const longest = 32
	for i := 0; i < len(s); i++ {
		if c := s[i]; !letterOrDigit(c) || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return s != "" && len(s) <= longest
}

// warnPlatform knows the names that other tools give to Go's platforms. It only warns: a worker could be built for a
// platform that this program has not heard of.
func (d *decoder) warnPlatform(e *entry, platform string) {
	os, arch, _ := strings.Cut(platform, "/")
	for _, p := range [][3]string{
		{os, "macos", "darwin"}, {os, "osx", "darwin"}, {os, "mac", "darwin"}, {os, "win", "windows"}, {os, "win32", "windows"},
		{os, "win64", "windows"}, {os, "ubuntu", "linux"}, {os, "debian", "linux"}, {os, "alpine", "linux"},
		{arch, "x64", "amd64"}, {arch, "x86", "386"}, {arch, "i386", "386"}, {arch, "i686", "386"},
		{arch, "aarch64", "arm64"}, {arch, "armv7", "arm"}, {arch, "armhf", "arm"},
	} {
		if p[0] == p[1] {
			d.warned.add(e.value.at, "no worker is '%s': Go calls it '%s'", p[1], p[2])
		}
	}
}

// within lays the settings over what is inherited: what is absent is inherited, what is present replaces, and what is
// explicitly empty clears. Labels replace as a whole; variables name by name.
func (s *settings) within(outer inherited) inherited {
	if s.target != nil {
		outer.placement.Target = *s.target
	}
	if s.platform != nil {
		outer.placement.Platform = *s.platform
	}
	if s.labels != nil {
		outer.placement.Labels = nil
		if len(*s.labels) > 0 {
			outer.placement.Labels = *s.labels
		}
	}
	if s.queueTimeout != nil {
		outer.queueTimeout = s.queueTimeout
	}
	if s.lost != "" {
		outer.lost = s.lost
	}
	outer.env = overlay(outer.env, s.env)
	return outer
}

// overlay merges two sets in key order; the inner one wins.
func overlay(outer, inner messages.Labels) messages.Labels {
	switch {
	case len(inner) == 0:
		return outer
	case len(outer) == 0:
		return inner
	}
	merged := make(messages.Labels, 0, len(outer)+len(inner))
	for len(outer) > 0 && len(inner) > 0 {
		switch c := strings.Compare(outer[0].Key, inner[0].Key); {
		case c < 0:
			merged, outer = append(merged, outer[0]), outer[1:]
		case c > 0:
			merged, inner = append(merged, inner[0]), inner[1:]
		default:
			merged, outer, inner = append(merged, inner[0]), outer[1:], inner[1:]
		}
	}
	return append(append(merged, outer...), inner...)
}

func (i inherited) apply(s *Step) {
	s.Placement, s.QueueTimeout, s.OnWorkerLost, s.Env = i.placement, i.queueTimeout, i.lost, i.env
}

// warnUnplaced warns of a queueTimeout that no step of its scope can make much of.
func (d *decoder) warnUnplaced(own *settings, steps []Step) {
	if own.queueTimeoutAt < 0 {
		return
	}
	for i := range steps {
		if !steps[i].Placement.IsZero() {
			return
		}
	}
	d.warned.add(own.queueTimeoutAt, "'queueTimeout' without target, labels or platform: a step that any worker can take hardly waits")
}
