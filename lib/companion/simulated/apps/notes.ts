import { type Context, defineApp } from '../app.ts';
import { button, column, field, icon, item, label, list, row, type View } from '../view.ts';

/** Older notes make room. */
const MOST = 100;

interface Memory {
  notes: string[];
  draft: string;
}

function all({ state, set, open }: Context<Memory>): View {
  const add = () => {
    set({ draft: '' });
    open('edit');
  };
  return column(
    row(label('Notes'), icon('New note', add)),
    list(
      'notes',
      state.notes.map((text, index) =>
        item([text], () => open('note', String(index)), { onLongClick: () => open('menu', String(index)) }),
      ),
    ),
  );
}

const edit = ({ state, set, back }: Context<Memory>): View =>
  column(
    label('New note'),
    field('note', 'Write something', state.draft, (draft) => set({ draft })),
    button(
      'Save',
      () => {
        set({ notes: [...state.notes, state.draft].slice(-MOST), draft: '' });
        back();
      },
      { enabled: state.draft !== '' },
    ),
  );

const menu = ({ page, state, set, back }: Context<Memory>): View =>
  column(
    label(state.notes[Number(page.argument)] ?? ''),
    button('Delete note', () => {
      set({ notes: state.notes.filter((_, index) => index !== Number(page.argument)) });
      back();
    }),
    button('Keep', back),
  );

export const notes = defineApp<Memory>({
  package: 'org.example.notes',
  label: 'Notes',
  start: () => ({ notes: ['Buy milk', 'Water the plants'], draft: '' }),
  screen(context) {
    switch (context.page.name) {
      case 'edit':
        return edit(context);
      case 'menu':
        return menu(context);
      case 'note':
        return column(label('Note'), label(context.state.notes[Number(context.page.argument)] ?? ''));
      default:
        return all(context);
    }
  },
});
