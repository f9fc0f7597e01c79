import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import { createProfiles } from '../../../lib/profiles/profiles.ts';
import { agent, handClock, listLog } from './support.ts';

const _ROOT = fileURLToPath(new URL('../../../', import.meta.url));

/** Holds each listing of `profiles/` until it is released or made to fail. */
function gate() {
  const scans: { go(): void; fail(error: Error): void }[] = [];
  const host = (real: Host): Host => ({
    ...real,
    files: {
      ...real.files,
      async list(directory) {
        if (directory.endsWith('/profiles')) {
          await new Promise<void>((go, fail) => {
            scans.push({ go, fail });
          });
        }
        return real.files.list(directory);
      },
    },
  });
  return { host, scans };
}

const begun = (scans: unknown[], count: number) => vi.waitFor(() => expect(scans).toHaveLength(count));

describe('the snapshot (contract 07 §1.4)', () => {
  it('is reported only when it differs', async () => {
    const { profiles, pushed, write, names } = await agent({ 'config.yaml': 'model: a' });
    expect(profiles.rows()).toEqual([]);
    await profiles.rescan();
    await profiles.rescan();
    expect(pushed).toHaveLength(1);
    await write('config.yaml', 'model: b');
    await profiles.rescan();
    expect(pushed).toHaveLength(2);
    expect(pushed[1]).toBe(profiles.rows());
    await write('skills/a/SKILL.md', '');
    await write('notes.md', '');
    await profiles.rescan();
    expect(pushed).toHaveLength(3);
    await write('profiles/one/config.yaml', '');
    await profiles.rescan();
    expect(pushed).toHaveLength(4);
    expect(names()).toEqual(['default', 'one']);
  });

  it('needs no this, and survives a listener that throws', async () => {
    const { profiles, warnings } = await agent(
      { 'config.yaml': '' },
      {
        onChange() {
          throw new Error('no');
        },
      },
    );
    const { rows } = profiles;
    await profiles.rescan();
    expect(rows()).toHaveLength(1);
    expect(warnings).toHaveLength(1);
  });

  it('is empty without a host, and with discovery off', async () => {
    const { config, host } = await agent({ 'config.yaml': '' });
    const clock = handClock();
    for (const deps of [{ config }, { config: { ...config, profileDiscovery: false }, host }]) {
      const onChange = vi.fn();
      const { log, warnings } = listLog();
      const { rows, rescan, start, stop, onChange: listen } = createProfiles({ ...deps, clock, log });
      listen(onChange);
      start();
      await rescan();
      expect(rows()).toEqual([]);
      expect(onChange).not.toHaveBeenCalled();
      expect(warnings).toEqual([]);
      expect(clock.pending).toBe(0);
      stop();
    }
  });

  it('is loading until the first scan is over, 2 s at most (11 §5)', async () => {
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const slow = (real: Host): Host => ({
      ...real,
      files: { ...real.files, read: (path, limit) => held.then(() => real.files.read(path, limit)) },
    });
    const { profiles, clock } = await agent({ 'config.yaml': '' }, { host: slow });
    expect(profiles.loading()).toBeUndefined();
    const scan = profiles.rescan();
    const over = vi.fn();
    const loading = profiles.loading();
    void loading?.then(over);
    expect(profiles.loading()).toBe(loading);
    clock.move(1_999);
    expect(over).not.toHaveBeenCalled();
    clock.move(1);
    await loading;
    expect(profiles.rows()).toEqual([]);
    release();
    await scan;
    expect(profiles.loading()).toBeUndefined();
    expect(clock.pending).toBe(0);

    const fast = await agent({ 'config.yaml': '' });
    void fast.profiles.rescan();
    await fast.profiles.loading();
    expect(fast.names()).toEqual(['default']);
    expect(fast.clock.pending).toBe(0);
    void fast.profiles.rescan();
    expect(fast.profiles.loading()).toBeUndefined();
  });

  it('is kept when a scan throws, with one log line', async () => {
    let failure: Error | null = null;
    const shaky = (real: Host): Host => ({
      ...real,
      files: {
        ...real.files,
        async read(path, limit) {
          if (failure && path.endsWith('config.yaml')) throw failure;
          return real.files.read(path, limit);
        },
      },
    });
    const { profiles, row, warnings, pushed } = await agent({ 'config.yaml': 'model: a' }, { host: shaky });
    await profiles.rescan();
    failure = Object.assign(new Error('too many open files'), { code: 'EMFILE' });
    await profiles.rescan();
    await profiles.rescan();
    expect(row().model).toBe('a');
    expect(warnings).toEqual(['profiles were not updated: EMFILE: too many open files']);
    failure = null;
    await profiles.rescan();
    expect(pushed).toHaveLength(1);
  });

  it('never overlaps scans: calls meanwhile share one later scan that sees what they wrote', async () => {
    const { host, scans } = gate();
    const { profiles, row, write } = await agent({ 'config.yaml': 'model: a' }, { host });
    const first = profiles.rescan();
    await begun(scans, 1);
    const later = [profiles.rescan(), profiles.rescan(), profiles.rescan()];
    await write('config.yaml', 'model: b');
    expect(scans).toHaveLength(1);
    scans[0]?.go();
    await first;
    await begun(scans, 2);
    scans[1]?.go();
    await Promise.all(later);
    expect(row().model).toBe('b');
    expect(scans).toHaveLength(2);
  });

  it('is current after calls at any moment, with one scan at a time', async () => {
    let under = 0;
    let most = 0;
    const counted = (real: Host): Host => ({
      ...real,
      files: {
        ...real.files,
        async list(directory) {
          if (!directory.endsWith('/profiles')) return real.files.list(directory);
          most = Math.max(most, ++under);
          return real.files.list(directory).finally(() => under--);
        },
      },
    });
    const { profiles, row, write } = await agent({ 'config.yaml': 'model: start' }, { host: counted });
    for (let round = 0; round < 50; round++) {
      await write('config.yaml', `model: m${round}`);
      const scan = profiles.rescan();
      // Stops after a different number of turns each time, even between the end of one scan and the next.
      for (let turn = 0; turn < round % 7; turn++) await Promise.resolve();
      void profiles.rescan();
      await scan;
      expect(row().model).toBe(`m${round}`);
    }
    await profiles.rescan();
    expect(most).toBe(1);
  });

  it('continues after a failed scan that others waited for', async () => {
    const { host, scans } = gate();
    const { profiles, names, warnings } = await agent({ 'config.yaml': '' }, { host });
    const both = [profiles.rescan(), profiles.rescan()];
    await begun(scans, 1);
    scans[0]?.fail(new Error('boom'));
    await begun(scans, 2);
    scans[1]?.go();
    await Promise.all(both);
    expect(names()).toEqual(['default']);
    expect(warnings).toEqual(['profiles were not updated: boom']);
  });
});

describe('start and stop', () => {
  it('scans every 30 s until stopped', async () => {
    const deaf = (real: Host): Host => ({ ...real, files: { ...real.files, watch: () => () => {} } });
    const { profiles, clock, row, write } = await agent({ 'config.yaml': 'model: a' }, { host: deaf });
    await profiles.rescan();
    profiles.start();
    profiles.start();
    expect(clock.pending).toBe(1);
    await write('config.yaml', 'model: b');
    clock.move(29_999);
    expect(clock.pending).toBe(1);
    clock.move(1);
    expect(clock.pending).toBe(0);
    await vi.waitFor(() => expect(row().model).toBe('b'));
    await vi.waitFor(() => expect(clock.pending).toBe(1));
    profiles.stop();
    expect(clock.pending).toBe(0);
  });

  it('scans after file events, at most every 5 s', async () => {
    let touched = () => {};
    let looks = 0;
    const ended = vi.fn();
    const watched: string[][] = [];
    const host = (real: Host): Host => ({
      ...real,
      files: {
        ...real.files,
        list(directory) {
          if (directory.endsWith('/profiles')) looks++;
          return real.files.list(directory);
        },
        watch(paths, changed) {
          watched.push(paths);
          touched = changed;
          return ended;
        },
      },
    });
    const { home, profiles, clock } = await agent({ 'config.yaml': 'model: a' }, { host });
    profiles.start();
    expect(watched).toEqual([[`${home}/config.yaml`, `${home}/active_profile`, `${home}/profiles`]]);
    touched();
    await vi.waitFor(() => expect(looks).toBe(1));
    for (let round = 0; round < 5; round++) touched();
    // The period and one wait.
    expect(clock.pending).toBe(2);
    clock.move(4_999);
    expect(clock.pending).toBe(2);
    clock.move(1);
    expect(clock.pending).toBe(1);
    await vi.waitFor(() => expect(looks).toBe(2));
    touched();
    expect(clock.pending).toBe(2);
    profiles.stop();
    expect(ended).toHaveBeenCalledTimes(1);
    expect(clock.pending).toBe(0);
  });

  it('notices a real file change soon', async () => {
    const { profiles, write, names } = await agent({ 'config.yaml': '' });
    await profiles.rescan();
    profiles.start();
    let round = 0;
    await vi.waitFor(
      async () => {
        await write(`profiles/p${round++}/config.yaml`, '');
        expect(names()).toContain('p0');
      },
      { interval: 100 },
    );
  });

  it('reports nothing after stop', async () => {
    const { host, scans } = gate();
    const { profiles, pushed } = await agent({ 'config.yaml': '' }, { host });
    const scan = profiles.rescan();
    await begun(scans, 1);
    profiles.stop();
    scans[0]?.go();
    await scan;
    expect(pushed).toEqual([]);
  });
});

describe('gateway_running (contract 07 §1.3)', () => {
  it('follows pid files and ports of real processes', async () => {
    const child = spawn(process.execPath, ['-e', 'console.log(1); setInterval(() => {}, 1000)', 'gateway'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    onTestFinished(() => void child.kill());
    await once(child.stdout, 'data');
    const server = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const { profiles, row } = await agent({
      'config.yaml': '',
      'gateway.pid': JSON.stringify({ pid: child.pid }),
      'profiles/port/config.yaml': `api_server: {enabled: true, host: 0.0.0.0, port: ${port}}`,
      'profiles/hidden/config.yaml': `api_server: {enabled: false, port: ${port}}`,
      'profiles/own/config.yaml': '',
      'profiles/own/gateway.pid': '2147483647',
    });
    await profiles.rescan();
    expect(row().gateway_running).toBe(true);
    // The attempt at the port is limited to 250 ms.
    await expect.poll(() => profiles.rescan().then(() => row('port').gateway_running)).toBe(true);
    expect(row('hidden').gateway_running).toBe(false);
    expect(row('own').gateway_running).toBe(false);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await profiles.rescan();
    expect(row().gateway_running).toBe(false);
  });
});
