import { describe, expect, test } from 'vitest';
import { createShell, WINDOW } from '../../../handlers/web/app/terminal/shell.ts';

/** A shell on a screen that draws when it is told to. */
function create({ isWatch = false } = {}) {
  const sent: [type: string, payload: Record<string, unknown>][] = [];
  const problems: string[] = [];
  const written: string[] = [];
  let drawing: (() => void)[] = [];
  const shell = createShell({
    port: { send: (type, payload) => sent.push([type, payload]) > 0 },
    name: 'a',
    isWatch,
    view: {
      size: { cols: 80, rows: 24 },
      fix: ({ cols, rows }) => written.push(`fixed ${cols}x${rows}`),
      write(text, done) {
        written.push(text);
        if (done) drawing.push(done);
      },
    },
    onProblem: (message) => problems.push(message),
  });
  const receive = (type: string, payload: Record<string, unknown> = {}) =>
    shell.receive({
      channel: 'terminal',
      type: `terminal.${type}`,
      id: 'x',
      payload: { session_name: 'a', ...payload },
      badPayload: false,
    } as never);
  return {
    shell,
    sent,
    problems,
    written,
    receive,
    draw() {
      const due = drawing;
      drawing = [];
      for (const done of due) done();
    },
    /** What was acknowledged. */
    acknowledged: () => sent.filter(([type]) => type === 'terminal.ack').map(([, { chars }]) => chars),
  };
}

describe('a shell of the page (contract 02 §3, 09 §1)', () => {
  test('attaches with a window and its size', () => {
    const { shell, sent } = create();
    shell.attach();
    expect(sent).toEqual([['terminal.attach', { session_name: 'a', cols: 80, rows: 24, window: WINDOW }]]);
  });

  test('acknowledges what was drawn, an eighth of the window at a time', () => {
    const { receive, draw, acknowledged } = create();
    receive('attached');
    receive('output', { data: 'x'.repeat(WINDOW / 8 - 1) });
    draw();
    expect(acknowledged()).toEqual([]);
    receive('output', { data: 'xy' });
    expect(acknowledged()).toEqual([]);
    draw();
    expect(acknowledged()).toEqual([WINDOW / 8 + 1]);
  });

  test('counts anew after another attach, also what is drawn late', () => {
    const { shell, receive, draw, acknowledged } = create();
    receive('attached');
    receive('output', { data: 'x'.repeat(WINDOW) });
    shell.lost();
    expect(shell.state.value).toEqual({ name: 'waiting' });
    receive('attached');
    draw();
    expect(acknowledged()).toEqual([]);
    receive('output', { data: 'x'.repeat(WINDOW / 8) });
    draw();
    expect(acknowledged()).toEqual([WINDOW / 8]);
  });

  test('shows the replay once: later the lines are there', () => {
    const { receive, written } = create();
    receive('attached', { replay: 'one\ntwo', tmux_available: true });
    receive('attached', { replay: 'one\ntwo', tmux_available: true });
    expect(written.filter((text) => text.includes('one'))).toEqual(['one\r\ntwo\r\n']);
  });

  test('02 §1.8: waits for the relay to be back after a shutdown, which ends only a shell without tmux', () => {
    const { shell, receive } = create();
    receive('attached', { tmux_available: true });
    receive('detached', { reason: 'server shutdown' });
    expect(shell.state.value).toEqual({ name: 'waiting' });
    receive('attached', { tmux_available: false });
    receive('detached', { reason: 'server shutdown' });
    expect(shell.state.value).toEqual({ name: 'ended', reason: 'server shutdown' });
  });

  test('ignores other shells, and tells what went wrong', () => {
    const { shell, receive, written, problems } = create();
    receive('attached', { session_name: 'b' });
    receive('output', { session_name: 'b', data: 'x' });
    expect(written).toEqual([]);
    receive('error', { message: 'Session cap reached' });
    expect(shell.state.value).toEqual({ name: 'failed', message: 'Session cap reached' });
    shell.attach();
    receive('attached');
    receive('error', { message: 'input queue full' });
    expect(problems).toEqual(['input queue full']);
    receive('detached', { reason: 'eof', exit_code: 2 });
    expect(shell.state.value).toEqual({ name: 'ended', reason: 'eof' });
    shell.lost();
    expect(shell.state.value.name).toBe('ended');
  });

  test('types only into a shell that is there, and long text in pieces that stay whole', () => {
    const { shell, sent, receive } = create();
    shell.type('lost');
    expect(sent).toEqual([]);
    receive('attached');
    sent.length = 0;
    const text = `x${'🎈'.repeat(300_000)}`;
    shell.type(text);
    const pieces = sent.map(([, { data }]) => String(data));
    expect(pieces.length).toBeGreaterThan(2);
    expect(pieces.join('')).toBe(text);
    for (const piece of pieces) expect(piece.isWellFormed()).toBe(true);
  });

  test('issue 25: what is typed while the relay opens the shell follows once it is open', () => {
    const { shell, sent, receive } = create();
    const typed = () => sent.filter(([type]) => type === 'terminal.input').map(([, { data }]) => data);
    shell.attach();
    shell.type('l');
    shell.type('s\r');
    shell.type('x'.repeat(4096));
    expect(typed()).toEqual([]);
    receive('attached');
    expect(typed()).toEqual(['ls\r']);
    shell.type('pwd\r');
    expect(typed()).toEqual(['ls\r', 'pwd\r']);
    // A shell that is attached again may be another one: what was meant for the first is lost.
    shell.lost();
    shell.attach();
    shell.type('y\r');
    receive('attached');
    expect(typed()).toEqual(['ls\r', 'pwd\r']);
  });

  test('issue 25: what is typed early goes with the connection, or with the refusal', () => {
    const { shell, sent, receive } = create();
    const typed = () => sent.filter(([type]) => type === 'terminal.input');
    shell.attach();
    shell.type('a');
    shell.lost();
    shell.type('b');
    shell.attach();
    shell.type('c');
    receive('error', { message: 'Session cap reached' });
    shell.attach();
    receive('attached');
    expect(typed()).toEqual([]);
  });

  test('only watched, it takes no input and its own size', () => {
    const { shell, sent, receive, written } = create({ isWatch: true });
    shell.attach();
    expect(sent).toEqual([['terminal.attach', expect.objectContaining({ session_name: 'a', mode: 'watch' })]]);
    receive('attached', { cols: 200, rows: 50 });
    receive('resized', { cols: 100, rows: 30 });
    expect(written.filter((text) => text.startsWith('fixed'))).toEqual(['fixed 200x50', 'fixed 100x30']);
    sent.length = 0;
    shell.type('x');
    shell.resize({ cols: 40, rows: 10 });
    expect(sent).toEqual([]);
    shell.detach();
    expect(sent).toEqual([['terminal.detach', { session_name: 'a' }]]);
  });
});
