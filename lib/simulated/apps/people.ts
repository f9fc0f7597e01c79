import { defineApp, type ScreenContext } from '../app.ts';
import { nameOf, prepend, sendMessage } from '../system.ts';
import { button, column, field, icon, item, label, list, row, type View } from '../view.ts';

const MAX_DRAFTS = 20;

interface MessagesState {
  to: string;
  /** Unsent text, keyed by number. */
  drafts: Record<string, string>;
}

const threadList = ({ system, open }: ScreenContext<MessagesState>): View =>
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

const newMessage = ({ state, set, open }: ScreenContext<MessagesState>): View =>
  column(
    label('New message'),
    field('to', 'To', state.to, (to) => set({ to })),
    button('Next', () => open('thread', state.to), { enabled: state.to !== '' }),
  );

function threadPage({ page, system, state, set }: ScreenContext<MessagesState>): View {
  const number = page.argument;
  const draft = state.drafts[number] ?? '';
  const write = (text: string) => {
    const { [number]: _, ...others } = state.drafts;
    set({ drafts: Object.fromEntries([...Object.entries(others), [number, text]].slice(-MAX_DRAFTS)) });
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

export const messages = defineApp<MessagesState>({
  package: 'com.android.messaging',
  label: 'Messages',
  initialState: () => ({ to: '', drafts: {} }),
  screen(context) {
    if (context.page.name === 'thread') return threadPage(context);
    return context.page.name === 'new' ? newMessage(context) : threadList(context);
  },
  accepts({ action, data }) {
    const number = /^smsto:(.+)$/.exec(data)?.[1];
    return action === 'android.intent.action.SENDTO' && number ? { name: 'thread', argument: number } : null;
  },
});

interface ContactsState {
  query: string;
}

function contactList({ system, state, set, open }: ScreenContext<ContactsState>): View {
  const found = system.contacts.filter(({ name }) => name.toLowerCase().includes(state.query.toLowerCase()));
  return column(
    label('Contacts'),
    field('search', 'Search contacts', state.query, (query) => set({ query })),
    list(
      'people',
      found.map(({ id, name }) => item([name], () => open('person', id))),
    ),
  );
}

function contactPage({ page, system, start }: ScreenContext<ContactsState>): View {
  const found = system.contacts.find(({ id }) => id === page.argument);
  const action = (name: string, data: string) => start({ action: `android.intent.action.${name}`, data });
  return column(
    label(found?.name ?? 'Unknown contact'),
    ...(found?.phones ?? []).flatMap(({ number, label: kind }) => [
      label(`${kind} ${number}`),
      button(`Dial ${number}`, () => action('DIAL', `tel:${number}`)),
      button(`Text ${number}`, () => action('SENDTO', `smsto:${number}`)),
    ]),
  );
}

export const contacts = defineApp<ContactsState>({
  package: 'com.android.contacts',
  label: 'Contacts',
  initialState: () => ({ query: '' }),
  screen: (context) => (context.page.name === 'person' ? contactPage(context) : contactList(context)),
});

interface DialerState {
  typed: string;
}

/** Calls are only recorded. */
export const dialer = defineApp<DialerState>({
  package: 'com.android.dialer',
  label: 'Phone',
  initialState: () => ({ typed: '' }),
  screen({ page, system, state, set, changed }) {
    const number = state.typed || page.argument;
    const call = () => {
      prepend(system.calls, { number, at: system.clock.now() });
      changed();
    };
    return column(
      label('Phone'),
      field('number', 'Number', number, (typed) => set({ typed })),
      button('Call', call, { enabled: number !== '' }),
      label('Recent calls'),
      list(
        'calls',
        system.calls.map((one) => label(`Called ${nameOf(system, one.number)}`)),
      ),
    );
  },
  // An intent only fills in the number: calls are placed by the person or by a confirmed `/call`.
  accepts({ action, data }) {
    const number = /^tel:(.+)$/.exec(data)?.[1];
    const isCall = action === 'android.intent.action.DIAL' || action === 'android.intent.action.CALL';
    return isCall && number ? { name: 'main', argument: number } : null;
  },
});
