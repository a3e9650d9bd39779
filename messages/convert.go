package messages

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Proto returns the labels as they stand in frames and records.
func (l Labels) Proto() []*KeyValue {
	if len(l) == 0 {
		return nil
	}
	list := make([]*KeyValue, len(l))
	for i, e := range l {
		list[i] = &KeyValue{Key: e.Key, Value: e.Value}
	}
	return list
}

// LabelsFrom returns the labels of a frame or record, in key order whatever the sender's; of two equal keys the later
// one counts.
func LabelsFrom(list []*KeyValue) Labels {
	m := make(map[string]string, len(list))
	for _, e := range list {
		m[e.GetKey()] = e.GetValue()
	}
	return LabelsOf(m)
}

// Proto returns the placement as it stands in records.
func (p Placement) Proto() *PlacementRecord {
	return &PlacementRecord{Target: p.Target, Labels: p.Labels.Proto(), Platform: p.Platform}
}

// PlacementFrom returns the placement of a record.
func PlacementFrom(r *PlacementRecord) Placement {
	return Placement{Target: r.GetTarget(), Labels: LabelsFrom(r.GetLabels()), Platform: r.GetPlatform()}
}

// Milliseconds returns d as frames carry it.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Duration returns a frame's milliseconds as a duration, within what a duration can hold.
func Duration(ms float64) time.Duration {
	const limit = float64(1 << 62)
	ns := ms * float64(time.Millisecond)
	switch {
	case ns != ns: // not a number
		return 0
	case ns > limit:
		return 1 << 62
	case ns < -limit:
		return -(1 << 62)
	default:
		return time.Duration(ns)
	}
}

// Time returns t as frames and records carry it: nil for the zero time.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// GoTime returns the time of a frame or record; nil is the zero time.
func GoTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
