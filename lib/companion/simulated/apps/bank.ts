import { defineApp } from '../app.ts';
import { button, column, field, label } from '../view.ts';

/** On the default blocklist: while it is in the foreground, the agent sees and does nothing. */
export const bank = defineApp({
  package: 'com.chase.sig.android',
  label: 'Bank',
  start: () => ({ password: '', balance: 1234.5 }),
  screen({ page, state, set, open }) {
    if (page.name === 'account') return column(label('Balance'), label(state.balance.toFixed(2)));
    return column(
      label('Sign in'),
      field('password', 'Password', state.password, (password) => set({ password }), { password: true }),
      button('Sign in', () => open('account'), { enabled: state.password !== '' }),
    );
  },
});
