package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// printShape writes a message as one line of JSON, as scripts read it. One write holds the whole line, so that a reader
// never sees half of it.
func printShape(w io.Writer, m proto.Message) error {
	data, err := messages.MarshalShape(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// table is a list for people.
type table struct {
	columns []string
	rows    [][]string
	// paint returns the escape sequence for a cell, or nothing.
	paint func(column int, cell string) string
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = oneLine(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// write writes the table, with colour if asked for. The last column is not padded.
func (t *table) write(w io.Writer, color bool) error {
	widths := make([]int, len(t.columns))
	for _, row := range append([][]string{t.columns}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], displayWidth(cell))
		}
	}
	var b strings.Builder
	line := func(row []string, paint func(int, string) string) {
		for i, cell := range row {
			start := ""
			if paint != nil && color {
				start = paint(i, cell)
			}
			b.WriteString(colored(start, cell))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-displayWidth(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	line(t.columns, func(int, string) string { return sgrBold })
	for _, row := range t.rows {
		line(row, t.paint)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Escape sequences, where color allows any.
const (
	sgrReset  = "\x1b[0m"
	sgrBold   = "\x1b[1m"
	sgrDim    = "\x1b[2m"
	sgrRed    = "\x1b[31m"
	sgrGreen  = "\x1b[32m"
	sgrYellow = "\x1b[33m"
	sgrCyan   = "\x1b[36m"
)

func colored(start, text string) string {
	if start == "" || text == "" {
		return text
	}
	return start + text + sgrReset
}

// statusColor is the colour of the word for a state of anything.
func statusColor(status string) string {
	switch status {
	case string(messages.StepSucceeded), string(messages.WorkerIdle), string(messages.TokenEnrolled):
		return sgrGreen
	case string(messages.StepRunning), string(messages.WorkerBusy):
		return sgrCyan
	case string(messages.StepQueued), string(messages.StepWaitingApproval), string(messages.WorkerDraining),
		string(messages.WorkerPaused), string(messages.WorkerUnverified), string(messages.RunSuspended):
		return sgrYellow
	case string(messages.StepFailed), string(messages.WorkerDisconnected), string(messages.WorkerUnhealthy),
		string(messages.TokenRevoked), string(messages.TokenExpired):
		return sgrRed
	case string(messages.StepPending), string(messages.StepSkipped), string(messages.StepCancelled):
		return sgrDim
	default:
		return ""
	}
}

// paintStatus paints one column by the state in it.
func paintStatus(column int) func(int, string) string {
	return func(i int, cell string) string {
		if i == column {
			return statusColor(cell)
		}
		return ""
	}
}

// safeText makes text harmless to a terminal: colours are dropped, every other control character is shown instead of
// obeyed, and so are those that change the direction of writing. Tabs stay, and so do line ends.
func safeText(s string) string {
	safe := true
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t' && c != '\n') || c >= 0x7f {
			safe = false
			break
		}
	}
	if safe {
		return s
	}
	var b strings.Builder
	for s != "" {
		if n := colorSequence(s); n > 0 {
			s = s[n:]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\t' || r == '\n':
			b.WriteRune(r)
		case r < 0xa0 && unicode.IsControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

// colorSequence returns the length of the sequence at the start of s that only changes colours, or 0.
func colorSequence(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == 'm':
			return i + 1
		case (c < '0' || c > '9') && c != ';' && c != ':':
			return 0
		}
	}
	return 0
}

// oneLine makes text safe and keeps it on one line.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(safeText(s), func(r rune) bool { return r == '\n' || r == '\t' }), " ")
}

// displayWidth is how many columns of a terminal text takes.
func displayWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth knows what is common: marks that combine take no column, East Asian letters and pictures take two.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff,
		r >= 0x20000 && r <= 0x3fffd:
		return 2
	default:
		return 1
	}
}

// fit cuts text to a width, and shows that it did.
func fit(s string, width int) string {
	if displayWidth(s) <= width {
		return s
	}
	if width <= 0 {
		return ""
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
