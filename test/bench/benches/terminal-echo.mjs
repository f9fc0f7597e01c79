import { prepareShells } from '../support/terminal.mjs';

export default {
  name: 'terminal-echo',
  title: 'keystroke to echo, p50',
  unit: 'ms',
  max: 3,
  operation: 'keystroke',
  async prepare(stage) {
    const shells = await prepareShells(stage, { RELAY_TERMINAL_TMUX: '0' });
    return { relay: shells.echo, bare: shells.bareEcho };
  },
};
