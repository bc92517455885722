#include "video/annotations.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

const ClassTable& mouse() {
  static const ClassTable table = ClassTable::mouse(false);
  return table;
}

Annotation read(const std::string& text, DataFindings& findings, bool accept_gaps = false) {
  return read_annotation(text, "a.csv", mouse(), accept_gaps, findings);
}

TEST(Annotations, LabelsAreNumbersOrNamesAndFramesBeginAtZeroOrOne) {
  DataFindings findings;
  EXPECT_EQ(read("Frame,Action\n0,0\n1,paw_lick\n2,Walk\n3,7.0\n", findings).classes,
            (std::vector<int16_t>{0, 2, 6, 7}));
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "Action , Frame\r\n1,1\r\n1,2\r\n",
                 findings)
                .classes,
            (std::vector<int16_t>{1, 1}));
  EXPECT_EQ(findings.render(), "");
}

TEST(Annotations, AnUnknownLabelIsRefusedByFileAndLine) {
  DataFindings findings;
  read("Frame,Action\n0,0\n1,sleep\n2,8\n3,\n", findings);
  ASSERT_EQ(findings.errors(), 3);
  EXPECT_EQ(findings.list()[0].line, 3);
  EXPECT_NE(findings.list()[0].render().find("a.csv:3: label: unknown label \"sleep\""), std::string::npos)
      << findings.list()[0].render();
  EXPECT_EQ(findings.list()[1].line, 4);
  EXPECT_EQ(findings.list()[2].line, 5);
}

TEST(Annotations, GapsAndDuplicatesAreErrorsAndWarningsWhereTheyAreAccepted) {
  const std::string text = "Frame,Action\n0,0\n1,1\n1,1\n4,2\n";
  DataFindings refused, accepted;
  read(text, refused);
  ASSERT_EQ(refused.errors(), 2);
  EXPECT_EQ(refused.list()[0].kind, "duplicate");
  EXPECT_EQ(refused.list()[1].kind, "gap");
  EXPECT_EQ(read(text, accepted, true).classes, (std::vector<int16_t>{0, 1, kNoLabel, kNoLabel, 2}));
  EXPECT_EQ(accepted.errors(), 0);
  EXPECT_EQ(accepted.warnings(), 2);
}

TEST(Annotations, TwoActionsOfOneFrameAndFramesOutOfOrderAreErrorsAlways) {
  DataFindings findings;
  read("Frame,Action\n0,0\n0,1\n5,1\n3,1\n", findings, true);
  ASSERT_EQ(findings.errors(), 2);
  EXPECT_EQ(findings.list()[0].kind, "duplicate");
  EXPECT_EQ(findings.list().back().kind, "order");
}

TEST(Annotations, AFileOfAnotherKindIsNoTrial) {
  EXPECT_EQ(read_annotation_name("prediction_mouse_3_12.csv")->video, "mouse_3");
  EXPECT_EQ(read_annotation_name("prediction_mouse_3_12.csv")->trial, 12);
  for (const char* name : {"prediction_3.csv", "mouse_3.csv", "prediction_mouse_x.csv", "prediction_mouse_-1.csv",
                           "prediction__.csv", "prediction_mouse_99999999999.csv", "prediction_mouse_3.txt"})
    EXPECT_FALSE(read_annotation_name(name)) << name;
}

TEST(ClassTable, GuardAndFlinchCountAsWithdrawWhereThatIsAskedFor) {
  const ClassTable merged = ClassTable::mouse(true);
  EXPECT_EQ(merged.size(), 6);
  EXPECT_EQ(merged.class_of("flinch"), merged.class_of("1"));
  EXPECT_EQ(merged.class_of("PAW_GUARD"), merged.class_of("paw_withdraw"));
  EXPECT_EQ(merged.names()[static_cast<size_t>(*merged.class_of("6"))], "walk");
  EXPECT_EQ(mouse().size(), 8);
}

TEST(ClassTable, ATableReadsBackAsItWasWritten) {
  DataFindings findings;
  const ClassTable table = ClassTable::mouse(true), again = ClassTable::read(table.csv(), "classes.csv", findings);
  EXPECT_EQ(findings.render(), "");
  EXPECT_EQ(again.names(), table.names());
  for (const std::string& label : table.labels()) EXPECT_EQ(again.class_of(label), table.class_of(label)) << label;
}

TEST(ClassTable, BadTablesAreRefusedByLine) {
  for (const char* text : {"label,name\n0,a\n2,b\n", "label,name\n0,a\n1,A\n", "label,name\n0,a\n1,17\n",
                           "label,name,merge\n0,a,\n1,b,c\n", "label,name\n0,a\n", "name\na\nb\n", ""}) {
    DataFindings findings;
    ClassTable::read(text, "classes.csv", findings);
    EXPECT_GT(findings.errors(), 0) << text;
  }
}

}  // namespace
}  // namespace tandem
