import { prepareShells } from '../support/terminal.mjs';

/** What a flood takes through tmux, which draws what can be seen and drops the rest: a figure without a bound. */
export default {
  name: 'terminal-tmux',
  title: 'terminal output, tmux',
  unit: 'MB/s',
  least: 0,
  rounds: 1,
  async prepare(stage) {
    const shells = await prepareShells(stage, { RELAY_TERMINAL_TMUX: '1' });
    return { relay: shells.flood, bare: shells.bareFlood };
  },
};
