import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { classify } from '../../../lib/tui/gateway.ts';
import { bench } from './support.ts';

describe('contract 02 §4.5: output', () => {
  it.each([
    ['{"method":"event","id":1}', 'event'],
    ['{"method":"event"}', 'event'],
    ['{"id":null}', 'response'],
    ['{"id":1,"method":"ask"}', 'response'],
    ['{"method":"other"}', 'event'],
    ['{"__proto__":{"id":1}}', 'event'],
    [' {} ', 'event'],
    ['', null],
    ['[{"id":1}]', null],
    ['null', null],
    ['"x"', null],
    ['{"id":1', null],
    ['{"id":1}{}', null],
    ['\ufeff{"id":1}', null],
  ])('%j is %j', (text, kind) => expect(classify(text)).toBe(kind));

  it('passes objects unchanged and in order; warns of other lines by their length', () => {
    const { prints, events, log } = bench();
    const strange = '{"id":12345678901234567890,"result":{"a":1e400,"a":1.0,"b":"\\ud800"}}';
    prints(`{"method":"event"}\nsecret noise\n\n${strange}\r\n[1]\n`);
    prints(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d, 0x0a]));
    prints('{"last":"é');
    prints('"}\n');
    expect(events).toEqual(['event {"method":"event"}', `response ${strange}`, 'event {"last":"é"}']);
    const warnings = log.lines.filter((line) => line.includes('WARNING'));
    expect(warnings.map((line) => /of (\d+) bytes/.exec(line)?.[1])).toEqual(['12', '0', '3', '7']);
    expect(log.lines.join()).not.toContain('secret');
  });

  it('passes nothing but objects, each unchanged, whatever is written', () => {
    const line = fc.oneof(
      fc.json().map((text) => text),
      fc.object().map((value) => JSON.stringify(value)),
      fc.string().map((text) => text.replace(/[\r\n]/g, '')),
    );
    fc.assert(
      fc.property(fc.array(line), fc.integer({ min: 1, max: 40 }), (lines, step) => {
        const { prints, events } = bench();
        const bytes = Buffer.from(lines.map((text) => `${text}\n`).join(''));
        for (let at = 0; at < bytes.length; at += step) prints(bytes.subarray(at, at + step));
        const clean = lines.map((text) => Buffer.from(text).toString());
        expect(events).toEqual(clean.filter(classify).map((text) => `${classify(text)} ${text}`));
      }),
    );
  });

  it('drops a line over 32 MiB with one warning; passes one of exactly 32 MiB', () => {
    const { prints, events, log } = bench();
    const MiB = 1024 * 1024;
    const filled = (bytes: number) => `{"x":"${'y'.repeat(bytes - 8)}"}`;
    prints(`${filled(32 * MiB)}\n`);
    expect(events.map((event) => event.length)).toEqual([32 * MiB + 'event '.length]);
    const large = filled(40 * MiB);
    for (let at = 0; at < large.length; at += MiB) prints(large.slice(at, at + MiB));
    prints('\n{"id":1}\n');
    expect(events.slice(1)).toEqual(['response {"id":1}']);
    expect(log.lines.filter((line) => line.includes('WARNING'))).toHaveLength(1);
  });

  it('sends stderr to the log only, at most 4 KiB per line', () => {
    const { complains, exits, events, log } = bench();
    complains(`one\n${'z'.repeat(10_000)}\nth`);
    complains('ree');
    exits(0);
    const lines = log.lines.filter((line) => line.includes('DEBUG'));
    expect(lines.map((line) => line.replace(/^.*: /, '').length)).toEqual([3, 4096, 5]);
    expect(events).toEqual(['exited 0 null']);
  });
});

describe('contract 02 §4.6: end', () => {
  it('reports the exit once, after a last line without newline', () => {
    const { prints, exits, events, clock } = bench();
    prints('{"id":1}');
    exits(3);
    expect(events).toEqual(['response {"id":1}', 'exited 3 null']);
    expect(clock.pending).toBe(0);
  });

  it('end() closes stdin, sends SIGTERM, SIGKILL after 2 s, and no event', async () => {
    const { gateway, prints, exits, events, signals, clock } = bench();
    let gone = false;
    const over = gateway.end().then(() => {
      gone = true;
    });
    expect(gateway.end()).toBeInstanceOf(Promise);
    prints('{"id":1}\n{"id":2}');
    clock.advance(1999);
    expect(signals).toEqual(['SIGTERM']);
    await clock.advanceAsync(1);
    expect(signals).toEqual(['SIGTERM', 'SIGKILL']);
    expect(gone).toBe(false);
    exits(null, 'SIGKILL');
    await over;
    expect(events).toEqual(['stdin closed']);
    expect(clock.pending).toBe(0);
  });

  it('does not wait forever', async () => {
    const { gateway, clock, log } = bench();
    const over = gateway.end();
    await clock.advanceAsync(4000);
    await over;
    expect(log.lines.join()).toContain('survived SIGKILL');
  });

  it('end() resumes a paused gateway for good', () => {
    const { gateway, isPaused } = bench();
    gateway.pause();
    expect(isPaused()).toBe(true);
    void gateway.end();
    gateway.pause();
    expect(isPaused()).toBe(false);
  });

  it('a listener that ends the gateway on its last line gets no exit event', () => {
    const { gateway, prints, exits, events } = bench();
    const push = events.push.bind(events);
    events.push = (event: string) => {
      if (event.startsWith('response')) void gateway.end();
      return push(event);
    };
    prints('{"id":1}');
    exits(0);
    expect([...events]).toEqual(['stdin closed', 'response {"id":1}']);
  });
});

describe('contract 02 §4.4: input', () => {
  it('is one line per message, unchanged', () => {
    const { gateway, written } = bench();
    expect(gateway.write('{"id":"r1","extra":1e400}')).toBe(true);
    expect(written).toEqual(['{"id":"r1","extra":1e400}\n']);
  });

  it('reports lost input while the gateway keeps running, but not when its exit follows', () => {
    const lost: string[] = [];
    const running = bench();
    running.gateway.write('{}', () => lost.push('running'));
    running.losesInput();
    running.clock.advance(1000);
    const leaving = bench();
    leaving.gateway.write('{}', () => lost.push('leaving'));
    leaving.losesInput();
    leaving.exits(1);
    leaving.clock.advance(1000);
    expect(lost).toEqual(['running']);
  });
});
