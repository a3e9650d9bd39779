package persistence

// recordsKept is how many records the committer remembers, at least, of those it had to do with last.
const recordsKept = 4 << 10

// recordKey names a record in the committer.
type recordKey struct {
	kind Kind
	id   string
}

// recordState is what the committer knows of a record: what the engine holds, changed by what the batch has taken.
type recordState struct {
	live    bool
	final   bool // live says Ended: of a kind whose ended records stay among the live ones
	version uint64
	state   string
	value   []byte // of kinds with a history only
	// ended tells whether there is an ended record, once that has been asked.
	ended, endedKnown bool
}

// records is the committer's memory of records. As the committer is the only writer, what it remembers is true; what it
// forgot it reads again.
//
// It also knows of most new ids that they are new, without asking the engine: for each kind there is a floor, and every
// record above it, live or ended, is remembered. As ids mostly grow with time, most births are above. The floor begins at
// the greatest id of the engine, and rises to the greatest one that is forgotten.
type records struct {
	kept       int
	young, old map[recordKey]recordState
	floors     [kindCodes]floor
	states     map[string]string // one copy of each word
}

type floor struct {
	known bool
	id    string
}

func newRecords() records {
	return records{
		kept: recordsKept, young: map[recordKey]recordState{}, old: map[recordKey]recordState{}, states: map[string]string{},
	}
}

// age forgets the older half when there is too much. It must not be called within a batch: what the batch has taken is
// nowhere else.
func (m *records) age() {
	if len(m.young) < m.kept {
		return
	}
	for key := range m.old {
		if f := &m.floors[kindCode(key.kind)]; f.known && key.id > f.id {
			f.id = key.id
		}
	}
	m.young, m.old = m.old, m.young
	clear(m.young)
}

func (m *records) get(key recordKey) (recordState, bool) {
	s, ok := m.young[key]
	if ok {
		return s, true
	}
	if s, ok = m.old[key]; ok {
		delete(m.old, key)
		m.young[key] = s
	}
	return s, ok
}

func (m *records) set(key recordKey, s recordState) {
	delete(m.old, key) // or the floor would rise for nothing when that is forgotten
	m.young[key] = s
}

// isNew tells whether an id that is not remembered is above the floor of its kind, and so is not there at all.
func (m *records) isNew(r Reader, key recordKey) (bool, error) {
	f := &m.floors[kindCode(key.kind)]
	if !f.known {
		greatest, err := greatestID(r, infoOf(key.kind))
		if err != nil {
			return false, err
		}
		f.known, f.id = true, greatest
	}
	return key.id > f.id, nil
}

// greatestID is the last id of a kind, live or ended; empty: there is none.
func greatestID(r Reader, info kindInfo) (greatest string, err error) {
	for _, prefix := range [...]string{info.prefix, info.ended} {
		if prefix == "" {
			continue
		}
		from := []byte(prefix)
		err := r.Scan(from, prefixEnd(from), true, func(key, _ []byte) bool {
			greatest = max(greatest, string(key[len(prefix):]))
			return false
		})
		if err != nil {
			return "", err
		}
	}
	return greatest, nil
}

// word returns a copy of a state that all records share.
func (m *records) word(state []byte) string {
	if s, ok := m.states[string(state)]; ok {
		return s
	}
	if len(m.states) >= 256 { // states are few; who uses them otherwise pays
		clear(m.states)
	}
	s := string(state)
	m.states[s] = s
	return s
}
