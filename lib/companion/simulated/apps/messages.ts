import { type Context, defineApp } from '../app.ts';
import { nameOf, sendMessage } from '../system.ts';
import { button, column, field, icon, item, label, list, row, type View } from '../view.ts';

const MOST_DRAFTS = 20;

interface Memory {
  to: string;
  /** Unsent text by number. */
  drafts: Record<string, string>;
}

const threads = ({ system, open }: Context<Memory>): View =>
  column(
    row(
      label('Messages'),
      icon('New message', () => open('new')),
    ),
    list(
      'threads',
      system.threads.map(({ number, messages }) =>
        item([nameOf(system, number), messages.at(-1)?.text ?? ''], () => open('thread', number)),
      ),
    ),
  );

const compose = ({ state, set, open }: Context<Memory>): View =>
  column(
    label('New message'),
    field('to', 'To', state.to, (to) => set({ to })),
    button('Next', () => open('thread', state.to), { enabled: state.to !== '' }),
  );

function thread({ page, system, state, set }: Context<Memory>): View {
  const number = page.argument;
  const draft = state.drafts[number] ?? '';
  const write = (text: string) => {
    const { [number]: _, ...others } = state.drafts;
    set({ drafts: Object.fromEntries([...Object.entries(others), [number, text]].slice(-MOST_DRAFTS)) });
  };
  const send = () => {
    sendMessage(system, number, draft);
    write('');
  };
  const messages = system.threads.find((one) => one.number === number)?.messages ?? [];
  return column(
    label(nameOf(system, number)),
    list(
      'messages',
      messages.map(({ from, text }) => label(text, { description: from === 'me' ? `You: ${text}` : undefined })),
    ),
    row(field('message', 'Text message', draft, write), button('Send', send, { enabled: draft !== '' })),
  );
}

export const messages = defineApp<Memory>({
  package: 'com.android.messaging',
  label: 'Messages',
  start: () => ({ to: '', drafts: {} }),
  screen(context) {
    if (context.page.name === 'thread') return thread(context);
    return context.page.name === 'new' ? compose(context) : threads(context);
  },
  accepts({ action, data }) {
    const number = /^smsto:(.+)$/.exec(data)?.[1];
    return action === 'android.intent.action.SENDTO' && number ? { name: 'thread', argument: number } : null;
  },
});
