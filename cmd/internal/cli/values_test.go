package cli

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want time.Duration
		bad  bool
	}{
		{in: "90s", want: 90 * time.Second},
		{in: "5m", want: 5 * time.Minute},
		{in: "1h30m", want: 90 * time.Minute},
		{in: "250ms", want: 250 * time.Millisecond},
		{in: "0", want: 0},
		{in: "0s", want: 0},
		{in: "45", want: 45 * time.Second},
		{in: "1.5", want: 1500 * time.Millisecond},
		{in: "7d", want: 7 * 24 * time.Hour},
		{in: "0.5d", want: 12 * time.Hour},
		{in: "1d12h", want: 36 * time.Hour},
		{in: "", bad: true},
		{in: "-5", bad: true},
		{in: "-5s", bad: true},
		{in: "-1d", bad: true},
		{in: "1d-1h", bad: true},
		{in: "d", bad: true},
		{in: "5 m", bad: true},
		{in: "3abc", bad: true},
		{in: "forever", bad: true},
		{in: "inf", bad: true},
		{in: "NaN", bad: true},
		{in: "1e300", bad: true},
		{in: "200000d", bad: true},
		{in: "10000000h", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			t.Parallel()
			got, err := parseDuration(tt.in)
			if (err != nil) != tt.bad || got != tt.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestFormatDuration_IsReadBackAsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "d"))
		if rapid.Bool().Draw(t, "whole seconds") {
			d = d.Truncate(time.Second)
		}
		got, err := parseDuration(formatDuration(d))
		if err != nil || got != d {
			t.Fatalf("%v is written %s and read %v, %v", d, formatDuration(d), got, err)
		}
	})
}

func TestFormatDuration_IsWhatAPersonWouldGive(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", time.Minute: "60s", 90 * time.Second: "90s", 5 * time.Minute: "5m", 24 * time.Hour: "24h",
		90 * time.Minute: "1h30m", 3700 * time.Second: "1h1m40s", 1500 * time.Millisecond: "1.5s",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%d is written %s, not %s", d, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		set  []string
		env  string
		want string
		bad  bool
	}{
		{name: "each flag is one label", set: []string{"gpu=true", "region=eu"}, want: "gpu=true,region=eu"},
		{name: "the later of two equal keys counts", set: []string{"a=1", "a=2"}, want: "a=2"},
		{name: "a value may be empty, and hold commas and equals signs", set: []string{"a=", "b=x,y=z"}, want: "a=,b=x,y=z"},
		{name: "a variable holds several", env: "gpu=true, region=eu", want: "gpu=true,region=eu"},
		{name: "no equals sign", set: []string{"gpu"}, bad: true},
		{name: "no key", set: []string{"=x"}, bad: true},
		{name: "a key with a space", set: []string{"a b=x"}, bad: true},
		{name: "a key of 64 characters", set: []string{strings.Repeat("k", 64) + "=x"}, bad: true},
		{name: "a key of 63 characters", set: []string{strings.Repeat("k", 63) + "=x"}, want: strings.Repeat("k", 63) + "=x"},
		{name: "a value with a line end", set: []string{"a=x\ny"}, bad: true},
		{name: "a value of 256 bytes", set: []string{"a=" + strings.Repeat("v", 256)}, bad: true},
		{name: "a variable that ends in a comma", env: "a=1,", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var v labelsValue
			var err error
			for _, s := range tt.set {
				if err == nil {
					err = v.Set(s)
				}
			}
			if tt.env != "" {
				err = v.setVariable(tt.env)
			}
			if (err != nil) != tt.bad {
				t.Fatalf("error %v", err)
			}
			if !tt.bad && v.String() != tt.want {
				t.Errorf("got %s", v.String())
			}
		})
	}
}

func TestShippedEnv(t *testing.T) {
	t.Parallel()
	env := []string{
		"CI_JOB=7", "CI_TOKEN=x=y", "AWS_REGION=eu", "PATH=/bin", "HOME=/root", "SWAMP_SERVER_TOKEN=s", "swamp_x=1", "XDG_DATA_HOME=/d",
		"LD_PRELOAD=x", "=C:=C:\\",
	}
	tests := []struct {
		name     string
		patterns []string
		want     []string
	}{
		{"nothing is sent unless it is named", nil, nil},
		{"a name", []string{"AWS_REGION"}, []string{"AWS_REGION=eu"}},
		{"a pattern", []string{"CI_*"}, []string{"CI_JOB=7", "CI_TOKEN=x=y"}},
		{"the denylist wins over any pattern", []string{"*"}, []string{"AWS_REGION=eu", "CI_JOB=7", "CI_TOKEN=x=y"}},
		{"two patterns send a variable once", []string{"CI_JOB", "CI_?OB"}, []string{"CI_JOB=7"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, shippedEnv(env, tt.patterns)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
